// gpu.hpp's functions in a build with GPU kernels: opens their library, which lies in the folder of
// this one, at the first call. Import and the CPU path thus work where the GPU runtime is missing.

#include <dlfcn.h>

#include <stdexcept>
#include <string>

#include "gpu/library_interface.hpp"
#include "simple_layernorm/gpu.hpp"

namespace simple_layernorm::gpu {
namespace {

std::string beside_this_library(const char* name) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&beside_this_library), &info) == 0) return name;
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + name;
}

const LibraryInterface& open_library() {
  const std::string path = beside_this_library(SIMPLE_LAYERNORM_GPU_LIBRARY);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library != nullptr ? dlsym(library, "simple_layernorm_gpu_interface") : nullptr;
  if (symbol == nullptr) {
    throw std::runtime_error(std::string("simple_layernorm: the GPU kernels cannot be loaded: ") +
                             dlerror());
  }
  return *reinterpret_cast<decltype(&simple_layernorm_gpu_interface)>(symbol)();
}

const LibraryInterface& library() {
  static const LibraryInterface& opened = open_library();
  return opened;
}

}  // namespace

Build build() { return {SIMPLE_LAYERNORM_GPU_LANGUAGE, SIMPLE_LAYERNORM_GPU_ARCHITECTURES}; }

std::string device_architecture() { return library().device_architecture(); }

std::size_t layer_norm_forward_workspace(const LayerNormForward& arguments) {
  return library().forward_workspace(arguments);
}

std::size_t layer_norm_backward_workspace(const LayerNormBackward& arguments) {
  return library().backward_workspace(arguments);
}

void layer_norm_forward(const LayerNormForward& arguments, void* workspace, void* stream) {
  library().forward(arguments, workspace, stream);
}

void layer_norm_backward(const LayerNormBackward& arguments, void* workspace, void* stream) {
  library().backward(arguments, workspace, stream);
}

}  // namespace simple_layernorm::gpu
