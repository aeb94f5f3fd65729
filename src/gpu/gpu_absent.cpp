// gpu.hpp's functions in a build without GPU kernels.

#include <stdexcept>

#include "simple_layernorm/gpu.hpp"

namespace simple_layernorm::gpu {
namespace {

[[noreturn]] void refuse() {
  throw std::runtime_error(
      "simple_layernorm: expected a build with GPU kernels, but this one has none "
      "(" SIMPLE_LAYERNORM_GPU_REASON "); rebuild with SIMPLE_LAYERNORM_GPU=HIP or CUDA");
}

}  // namespace

Build build() { return {"off", ""}; }
std::string device_architecture() { refuse(); }
std::size_t layer_norm_forward_workspace(const LayerNormForward&) { refuse(); }
std::size_t layer_norm_backward_workspace(const LayerNormBackward&) { refuse(); }
void layer_norm_forward(const LayerNormForward&, void*, void*) { refuse(); }
void layer_norm_backward(const LayerNormBackward&, void*, void*) { refuse(); }

}  // namespace simple_layernorm::gpu
