#include "torch/execution.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "simple_layernorm/cpu.hpp"
#include "simple_layernorm/gpu.hpp"

namespace simple_layernorm::torch_ops {
namespace {

void intra_op_threads(std::int64_t tasks, const std::function<void(std::int64_t)>& task) {
  at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) task(i);
  });
}

const cpu::ParallelFor kIntraOpThreads = intra_op_threads;

/// Memory from PyTorch's allocator, which keeps a GPU's until the work queued so far has used it.
class Workspace {
 public:
  Workspace(std::size_t bytes, c10::Device device) {
    if (bytes == 0) return;
    const auto size = static_cast<std::int64_t>(bytes);
    // On the CPU without the dispatcher, as results are allocated.
    bytes_ = device.is_cpu() ? at::Tensor(at::detail::empty_cpu({size}, at::kByte))
                             : at::empty({size}, at::device(device).dtype(at::kByte));
  }
  void* data() const { return bytes_.defined() ? bytes_.mutable_data_ptr() : nullptr; }

 private:
  at::Tensor bytes_;
};

void* current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

}  // namespace

void run(const LayerNormForward& arguments, c10::Device device) {
  if (device.is_cpu()) {
    const Workspace workspace(cpu::layer_norm_forward_workspace(arguments), device);
    return cpu::layer_norm_forward(arguments, workspace.data(), kIntraOpThreads);
  }
  const c10::DeviceGuard guard(device);
  const Workspace workspace(gpu::layer_norm_forward_workspace(arguments), device);
  gpu::layer_norm_forward(arguments, workspace.data(), current_stream(device));
}

void run(const LayerNormBackward& arguments, c10::Device device) {
  if (device.is_cpu()) {
    const Workspace workspace(cpu::layer_norm_backward_workspace(arguments), device);
    return cpu::layer_norm_backward(arguments, workspace.data(), kIntraOpThreads);
  }
  const c10::DeviceGuard guard(device);
  const Workspace workspace(gpu::layer_norm_backward_workspace(arguments), device);
  gpu::layer_norm_backward(arguments, workspace.data(), current_stream(device));
}

}  // namespace simple_layernorm::torch_ops
