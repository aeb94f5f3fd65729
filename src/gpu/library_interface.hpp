// Between gpu.hpp's functions and the library of kernels that they open: same meaning, same errors.
#pragma once

#include <cstddef>
#include <string>

#include "simple_layernorm/layer_norm.hpp"

namespace simple_layernorm::gpu {

struct LibraryInterface {
  const char* language;
  const char* architectures;
  std::string (*device_architecture)();
  std::size_t (*forward_workspace)(const LayerNormForward&);
  void (*forward)(const LayerNormForward&, void* workspace, void* stream);
  std::size_t (*backward_workspace)(const LayerNormBackward&);
  void (*backward)(const LayerNormBackward&, void* workspace, void* stream);
};

}  // namespace simple_layernorm::gpu

/// The one symbol that the library of kernels exports.
extern "C" __attribute__((visibility("default"))) const simple_layernorm::gpu::LibraryInterface*
simple_layernorm_gpu_interface();
