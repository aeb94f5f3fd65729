// The LayerNorm operator: schema, and its kernels for CPU, CUDA (which is ROCm's key too) and Meta.

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include "simple_layernorm/cpu.hpp"
#include "simple_layernorm/gpu.hpp"
#include "simple_layernorm/torch/layer_norm.hpp"
#include "torch/problem.hpp"

namespace simple_layernorm::torch_ops {
namespace {

constexpr const char* kOp = "simple_layernorm::layer_norm";

void run_tasks(std::int64_t tasks, const std::function<void(std::int64_t)>& task) {
  at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) task(i);
  });
}

void forward_on_device(const LayerNormForward& arguments, c10::Device device) {
  if (device.is_cpu()) return cpu::layer_norm_forward(arguments, nullptr, run_tasks);
  const c10::DeviceGuard guard(device);
  void* stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
  gpu::layer_norm_forward(arguments, nullptr, stream);
}

at::Tensor layer_norm_kernel(const at::Tensor& input, at::IntArrayRef normalized_shape,
                             const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  check_layer_norm(kOp, input, c10::fromIntArrayRefSlow(normalized_shape), weight, bias);
  const Rows x = as_rows(input, normalized_shape.size());
  const auto contiguous = [](const OptionalTensor& t) {
    return t.has_value() && t->defined() ? t->contiguous() : at::Tensor();
  };
  const at::Tensor w = contiguous(weight);
  const at::Tensor b = contiguous(bias);
  at::Tensor output = at::empty(input.sizes(), input.options());

  LayerNormForward arguments;
  arguments.rows = x.rows;
  arguments.cols = x.cols;
  arguments.row_stride = x.row_stride;
  arguments.eps = eps;
  arguments.input = x.tensor.const_data_ptr();
  arguments.output = output.mutable_data_ptr();
  arguments.input_dtype = dtype_of(kOp, input);
  if (w.defined()) {
    arguments.weight = w.const_data_ptr();
    arguments.weight_dtype = dtype_of(kOp, w);
  }
  if (b.defined()) {
    arguments.bias = b.const_data_ptr();
    arguments.bias_dtype = dtype_of(kOp, b);
  }
  forward_on_device(arguments, input.device());
  return output;
}

at::Tensor layer_norm_meta(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                           const OptionalTensor& weight, const OptionalTensor& bias, double) {
  check_layer_norm(kOp, input, normalized_shape, weight, bias);
  return at::empty_symint(input.sym_sizes(), input.options());
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(kOp, "")
                             .typed<decltype(layer_norm)>();
  return op.call(input, normalized_shape, weight, bias, eps);
}

TORCH_LIBRARY(simple_layernorm, m) {
  m.def(
      "layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
      "float eps=1e-05) -> Tensor");
}
TORCH_LIBRARY_IMPL(simple_layernorm, CPU, m) { m.impl("layer_norm", layer_norm_kernel); }
TORCH_LIBRARY_IMPL(simple_layernorm, CUDA, m) { m.impl("layer_norm", layer_norm_kernel); }
TORCH_LIBRARY_IMPL(simple_layernorm, Meta, m) { m.impl("layer_norm", layer_norm_meta); }

}  // namespace simple_layernorm::torch_ops
