// The library of GPU kernels as seen from outside: a table of functions behind one C symbol. Finds
// the current device, refuses it if nothing was compiled for it, and passes on to the kernels.

#include <array>
#include <mutex>
#include <string>

#include "gpu/architectures.hpp"
#include "gpu/gpu_runtime.hpp"
#include "gpu/layernorm_launch.hpp"
#include "gpu/library_interface.hpp"

namespace simple_layernorm::gpu {
namespace {

struct Device {
  DeviceProperties properties;
  std::string architecture;
};

Device read_device(int index) {
  DeviceProperties_t properties;
  check(SIMPLE_LAYERNORM_RUNTIME(GetDeviceProperties)(&properties, index), "GetDeviceProperties");
  return {{properties.warpSize, properties.multiProcessorCount}, architecture_of(properties)};
}

/// Properties of the current device, read once per device: the query takes milliseconds.
const Device& current_device() {
  constexpr int kMostDevices = 64;
  static std::array<Device, kMostDevices> devices;
  static std::array<std::once_flag, kMostDevices> once;
  int index = 0;
  check(SIMPLE_LAYERNORM_RUNTIME(GetDevice)(&index), "GetDevice");
  if (index >= kMostDevices) {
    throw std::runtime_error("simple_layernorm: expected a GPU with an index below 64, but got " +
                             std::to_string(index));
  }
  std::call_once(once[index], [&] { devices[index] = read_device(index); });
  return devices[index];
}

/// The current device, if there is code for it in this build.
const DeviceProperties& usable_device() {
  const Device& device = current_device();
  const std::string list = SIMPLE_LAYERNORM_GPU_ARCHITECTURES;
  if (!any_runs_on(list, device.architecture)) {
    throw std::runtime_error("simple_layernorm: expected a GPU of one of the architectures in this build (" +
                             list + "), but got " + device.architecture +
                             "; rebuild with its architecture in the list");
  }
  return device.properties;
}

const LibraryInterface interface{
    SIMPLE_LAYERNORM_LANGUAGE,
    SIMPLE_LAYERNORM_GPU_ARCHITECTURES,
    [] { return current_device().architecture; },
    [](const LayerNormForward&) { return std::size_t{0}; },
    [](const LayerNormForward& arguments, void*, void* stream) {
      const DeviceProperties& device = usable_device();
      if (arguments.rows == 0 || arguments.cols == 0) return;
      launch_forward(arguments, device, stream);
    },
    [](const LayerNormBackward& arguments) {
      return backward_workspace(arguments, usable_device());
    },
    [](const LayerNormBackward& arguments, void* workspace, void* stream) {
      const DeviceProperties& device = usable_device();
      if (arguments.cols == 0) return;
      launch_backward(arguments, device, workspace, stream);
    },
};

}  // namespace
}  // namespace simple_layernorm::gpu

extern "C" const simple_layernorm::gpu::LibraryInterface* simple_layernorm_gpu_interface() {
  return &simple_layernorm::gpu::interface;
}
