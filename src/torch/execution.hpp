// Where a problem runs: it brings the CPU's kernels threads, the GPU's a device and its current
// stream, and both memory. What the operators above and the kernels below need not know.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include "simple_layernorm/layer_norm.hpp"

namespace simple_layernorm::torch_ops {

/// The device of a tensor, which is the current one for as long as this lives.
class Place {
 public:
  explicit Place(const at::Tensor& tensor);

  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) const;
  void run(const LayerNormForward& arguments) const;
  void run(const LayerNormBackward& arguments) const;

 private:
  c10::DataPtr workspace(std::size_t bytes) const;
  void* current_stream() const;

  c10::Device device_;
  c10::Allocator* allocator_;
  c10::OptionalDeviceGuard guard_;
};

}  // namespace simple_layernorm::torch_ops
