// LayerNorm on AMD GPUs (HIP) and NVIDIA GPUs (CUDA). Needs no GPU header and no GPU runtime to
// compile or to load: the kernels live in a library of their own that the first call opens.
//
//   Every function works on the calling thread's current device, queues its work on the given
//   stream, never synchronises and keeps no state on the device, so that calls can be captured in a
//   graph. All functions except build() throw std::runtime_error, before anything is launched, if
//   the build has no GPU kernels, the GPU runtime cannot be loaded, or the device's architecture is
//   not among those the kernels were compiled for; the text says which.
#pragma once

#include <cstddef>
#include <string>

#include "simple_layernorm/layer_norm.hpp"

#pragma GCC visibility push(default)
namespace simple_layernorm::gpu {

/// What was compiled. Never throws and opens no library.
struct Build {
  std::string language;       ///< "hip", "cuda" or "off"
  std::string architectures;  ///< semicolon-separated, such as "gfx90a;gfx1030"; empty when off
};
Build build();

/// Name of the current device's architecture, such as "gfx90a" or "sm_90".
std::string device_architecture();

/// Bytes of device memory, aligned to 256, that the function of the same name needs as workspace
/// for these arguments on the current device. 0 means that workspace may be null.
std::size_t layer_norm_forward_workspace(const LayerNormForward& arguments);
std::size_t layer_norm_backward_workspace(const LayerNormBackward& arguments);

/// Queues the forward or backward pass on `stream` (a hipStream_t or cudaStream_t; null is the
/// default stream). All pointers are device pointers. `workspace` belongs to this call until its
/// work on the stream is done; its contents are undefined on entry and on return.
void layer_norm_forward(const LayerNormForward& arguments, void* workspace, void* stream);
void layer_norm_backward(const LayerNormBackward& arguments, void* workspace, void* stream);

}  // namespace simple_layernorm::gpu
#pragma GCC visibility pop
