// The operators on at::Tensor. Linking simple_layernorm::torch also loads them into PyTorch's
// dispatcher as simple_layernorm::*.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>

#pragma GCC visibility push(default)
namespace simple_layernorm::torch_ops {

/// LayerNorm over the last normalized_shape.size() dimensions of `input`, whose sizes must equal
/// normalized_shape. float32, float64, float16 or bfloat16; weight and bias have normalized_shape and
/// input's dtype, or float32 with 16-bit input. Returns a contiguous tensor of input's shape and
/// dtype. Runs on input's device and current stream. Throws c10::Error as torch's layer_norm does.
at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight = {},
                      const std::optional<at::Tensor>& bias = {}, double eps = 1e-5);

}  // namespace simple_layernorm::torch_ops
#pragma GCC visibility pop
