// The library of GPU kernels as seen from outside: a table of functions behind one C symbol. Finds
// the current device, refuses it if nothing was compiled for it, and passes on to the kernels.

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "gpu/architectures.hpp"
#include "gpu/elements.hpp"
#include "gpu/gradient_handover.hpp"
#include "gpu/handover.hpp"
#include "gpu/launch.hpp"
#include "gpu/launch_plan.hpp"
#include "gpu/layernorm_launch.hpp"
#include "gpu/library_interface.hpp"
#include "gpu/parameter_copies.hpp"
#include "gpu/partial_sums.hpp"

namespace simple_layernorm::gpu {
namespace {

struct Device {
  DeviceProperties properties;
  std::string architecture;
  bool has_code = false;  ///< for it in this build
};

Device read_device(int index) {
  DeviceProperties_t properties;
  check(SIMPLE_LAYERNORM_RUNTIME(GetDeviceProperties)(&properties, index), "GetDeviceProperties");
  const Room room = chosen_room(std::getenv("SIMPLE_LAYERNORM_PLAN"), room_of(properties));
  const std::string architecture = architecture_of(properties);
  return {{properties.warpSize, properties.multiProcessorCount, room, lasting_l2_bytes(properties)},
          architecture,
          any_runs_on(SIMPLE_LAYERNORM_GPU_ARCHITECTURES, architecture)};
}

/// The current device. Its properties take the runtime milliseconds.
const Device& current_device() {
  static PerDevice<Device> devices;
  return devices.get(read_device);
}

/// The current device, if there is code for it in this build.
const DeviceProperties& usable_device() {
  const Device& device = current_device();
  if (!device.has_code) {
    throw std::runtime_error(
        "simple_layernorm: expected a GPU of one of the architectures in this build (" +
        std::string(SIMPLE_LAYERNORM_GPU_ARCHITECTURES) + "), but got " + device.architecture +
        "; rebuild with its architecture in the list");
  }
  return device.properties;
}

ForwardPlan plan_of(const LayerNormForward& a, const DeviceProperties& device) {
  return plan_forward(a.rows, a.cols, static_cast<int>(size_of(a.input_dtype)), device);
}

std::size_t forward_workspace(const LayerNormForward& a) {
  const ForwardPlan plan = plan_of(a, usable_device());
  if (plan.kernel == ForwardKernel::general) return 0;
  std::size_t messages = 0;
  if (plan.kernel == ForwardKernel::split) {
    messages = SplitWorkspace::bytes(a.rows, plan.pieces);
    // More only where blocks have more waves than in parts: NVIDIA's, which need none.
    const int pieces = plan_in_parts(plan).pieces;
    if (kRunsInParts) messages = std::max(messages, PieceMessages::bytes(a.rows, pieces));
  }
  if (plan.kernel == ForwardKernel::few_rows && plan.pieces > 1) {
    messages = PieceMessages::bytes(a.rows, plan.pieces);
  }
  return parameter_copies_bytes(a) + messages;
}

void launch_forward(const LayerNormForward& given, void* workspace, void* stream) {
  const DeviceProperties& device = usable_device();
  if (given.rows == 0 || given.cols == 0) return;
  ForwardPlan plan = plan_of(given, device);
  if (plan.kernel == ForwardKernel::general) return launch_forward_general(given, device, stream);
  if (plan.pieces > 1 && !may_wait(stream)) plan = plan_in_parts(plan);
  LayerNormForward a = given;
  if (const std::size_t bytes = parameter_copies_bytes(given); bytes > 0) {
    a = with_parameter_copies(given, workspace, stream);
    workspace = static_cast<char*>(workspace) + bytes;
  }
  with_packed_type(a.input_dtype, [&](auto element) {
    using Element = decltype(element);
    if (plan.kernel == ForwardKernel::lanes) {
      launch_forward_lanes<Element>(a, plan, stream);
    } else if (plan.kernel == ForwardKernel::few_rows) {
      launch_forward_few_rows<Element>(a, plan, device, workspace, stream);
    } else if (plan.kernel == ForwardKernel::block) {
      launch_forward_block<Element>(a, plan, device, stream);
    } else {
      launch_forward_split<Element>(a, plan, device, workspace, stream);
    }
  });
}

BackwardPlan plan_of(const LayerNormBackward& a, const DeviceProperties& device) {
  return plan_backward(a.rows, a.cols, static_cast<int>(size_of(a.input_dtype)),
                       static_cast<int>(size_of(a.output_dtype())), device);
}

std::size_t backward_workspace(const LayerNormBackward& a) {
  const BackwardPlan plan = plan_of(a, usable_device());
  if (plan.kernel == BackwardKernel::general) return general_backward_workspace(a, plan);
  const bool splits = plan.kernel == BackwardKernel::split;
  return PartialSums<float>::bytes(a, plan.groups) +
         (splits ? SumsExchange::bytes(a.rows, plan.pieces) : 0);
}

void launch_backward(const LayerNormBackward& a, void* workspace, void* stream) {
  const DeviceProperties& device = usable_device();
  if (a.cols == 0) return;
  BackwardPlan plan = plan_of(a, device);
  if (plan.kernel == BackwardKernel::general) {
    return launch_backward_general(a, plan, workspace, stream);
  }
  plan.in_parts = plan.pieces > 1 && !may_wait(stream);
  if (a.rows == 0) return launch_sum(a, PartialSums<float>(a, 0, workspace), stream);
  with_packed_type(a.input_dtype, [&](auto element) {
    using Element = decltype(element);
    if (plan.kernel == BackwardKernel::lanes) {
      launch_backward_lanes<Element>(a, plan, workspace, stream);
    } else if (plan.kernel == BackwardKernel::block) {
      launch_backward_block<Element>(a, plan, workspace, stream);
    } else {
      launch_backward_split<Element>(a, plan, device, workspace, stream);
    }
  });
}

const LibraryInterface interface{
    SIMPLE_LAYERNORM_LANGUAGE,
    SIMPLE_LAYERNORM_GPU_ARCHITECTURES,
    [] { return current_device().architecture; },
    forward_workspace,
    launch_forward,
    backward_workspace,
    launch_backward,
};

}  // namespace
}  // namespace simple_layernorm::gpu

extern "C" const simple_layernorm::gpu::LibraryInterface* simple_layernorm_gpu_interface() {
  return &simple_layernorm::gpu::interface;
}
