#include "torch/execution.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
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

/// PyTorch's, which keeps a GPU's memory until the work queued so far has used it. torch.empty
/// costs 2700 instructions on the CPU, 800 of them in the dispatcher (callgrind, torch 2.13,
/// 2026-11-30), sets a GPU's device twice beside, and a training step needs memory eight times.
c10::Allocator* allocator_of(c10::Device device) {
  if (device.is_cpu()) return c10::GetCPUAllocator();
  // Asked of a tensor, because CUDA's and ROCm's builds name it differently. Once it is in use,
  // PyTorch lets no other take its place.
  static c10::Allocator* const gpu_allocator =
      at::empty({0}, at::device(device)).storage().allocator();
  return gpu_allocator;
}

}  // namespace

Place::Place(const at::Tensor& tensor)
    : device_(tensor.device()), allocator_(allocator_of(device_)) {
  if (!device_.is_cpu()) guard_.reset_device(device_);
}

at::Tensor Place::empty(at::IntArrayRef sizes, at::ScalarType dtype) const {
  const c10::DispatchKeySet key(device_.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA);
  return at::Tensor(at::detail::empty_generic(sizes, allocator_, key, dtype, {}));
}

c10::DataPtr Place::workspace(std::size_t bytes) const {
  return bytes > 0 ? allocator_->allocate(bytes) : c10::DataPtr();
}

void* Place::current_stream() const {
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).native_handle();
}

void Place::run(const LayerNormForward& arguments) const {
  if (device_.is_cpu()) {
    const auto memory = workspace(cpu::layer_norm_forward_workspace(arguments));
    return cpu::layer_norm_forward(arguments, memory.get(), kIntraOpThreads);
  }
  const auto memory = workspace(gpu::layer_norm_forward_workspace(arguments));
  gpu::layer_norm_forward(arguments, memory.get(), current_stream());
}

void Place::run(const LayerNormBackward& arguments) const {
  if (device_.is_cpu()) {
    const auto memory = workspace(cpu::layer_norm_backward_workspace(arguments));
    return cpu::layer_norm_backward(arguments, memory.get(), kIntraOpThreads);
  }
  const auto memory = workspace(gpu::layer_norm_backward_workspace(arguments));
  gpu::layer_norm_backward(arguments, memory.get(), current_stream());
}

}  // namespace simple_layernorm::torch_ops
