// The LayerNorm operators on the CPU and on GPUs: check once, allocate once, run.

#include <torch/library.h>

#include "torch/execution.hpp"
#include "torch/problem.hpp"

namespace simple_layernorm::torch_ops {
namespace {

using Tensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

OptionalTensor contiguous(const OptionalTensor& tensor) {
  return is_present(tensor) ? OptionalTensor(tensor->contiguous()) : OptionalTensor();
}

OptionalTensor to(const OptionalTensor& tensor, at::ScalarType dtype) {
  return is_present(tensor) ? OptionalTensor(tensor->to(dtype)) : OptionalTensor();
}

/// Whether output's dtype is another than input's.
bool is_wide(const at::Tensor& input, OptionalDtype output_dtype) {
  return output_dtype.value_or(input.scalar_type()) != input.scalar_type();
}

at::Tensor forward_kernel(const Place& place, const at::Tensor& input, std::size_t normalized_dims,
                          const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                          bool wide, void* mean, void* rstd) {
  if (wide && input.is_cpu()) {  // where no autocast asks for it, so that no kernel has it
    return forward_kernel(place, input.to(at::kFloat), normalized_dims, to(weight, at::kFloat),
                          to(bias, at::kFloat), eps, false, mean, rstd);
  }
  const Rows x = as_rows(input, normalized_dims);
  const OptionalTensor w = contiguous(weight);
  const OptionalTensor b = contiguous(bias);
  at::Tensor output = place.empty(input.sizes(), wide ? at::kFloat : input.scalar_type());

  LayerNormForward arguments;
  arguments.rows = x.rows;
  arguments.cols = x.cols;
  arguments.row_stride = x.row_stride;
  arguments.eps = eps;
  arguments.input = x.tensor->const_data_ptr();
  arguments.input_dtype = dtype_of(input.scalar_type());
  if (w) {
    arguments.weight = w->const_data_ptr();
    arguments.weight_dtype = dtype_of(w->scalar_type());
  }
  if (b) {
    arguments.bias = b->const_data_ptr();
    arguments.bias_dtype = dtype_of(b->scalar_type());
  }
  arguments.output = output.mutable_data_ptr();
  arguments.mean = mean;
  arguments.rstd = rstd;
  arguments.wide_output = wide;
  place.run(arguments);
  return output;
}

at::Tensor layer_norm_kernel(const at::Tensor& input, at::IntArrayRef normalized_shape,
                             const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                             OptionalDtype output_dtype) {
  check_layer_norm("simple_layernorm::layer_norm", input, normalized_shape, weight, bias,
                   output_dtype);
  return forward_kernel(Place(input), input, normalized_shape.size(), weight, bias, eps,
                        is_wide(input, output_dtype), nullptr, nullptr);
}

Tensors layer_norm_forward_kernel(const at::Tensor& input, at::IntArrayRef normalized_shape,
                                  const OptionalTensor& weight, const OptionalTensor& bias,
                                  double eps, OptionalDtype output_dtype) {
  check_layer_norm("simple_layernorm::layer_norm", input, normalized_shape, weight, bias,
                   output_dtype);
  const auto rows = input.sizes().slice(0, input.dim() - normalized_shape.size());
  const Place place(input);
  at::Tensor mean = place.empty(rows, statistic_dtype(input.scalar_type()));
  at::Tensor rstd = place.empty(rows, statistic_dtype(input.scalar_type()));
  at::Tensor output = forward_kernel(place, input, normalized_shape.size(), weight, bias, eps,
                                     is_wide(input, output_dtype), mean.mutable_data_ptr(),
                                     rstd.mutable_data_ptr());
  return {std::move(output), std::move(mean), std::move(rstd)};
}

Tensors backward_kernel(const at::Tensor& grad_output, const at::Tensor& input,
                        at::IntArrayRef normalized_shape, const at::Tensor& mean,
                        const at::Tensor& rstd, const OptionalTensor& weight,
                        at::ScalarType bias_dtype, std::array<bool, 3> output_mask) {
  const bool wide = is_wide(input, grad_output.scalar_type());
  if (wide && input.is_cpu()) {
    auto [grad_input, grad_weight, grad_bias] =
        backward_kernel(grad_output, input.to(at::kFloat), normalized_shape, mean, rstd,
                        to(weight, at::kFloat), at::kFloat, output_mask);
    if (grad_input.defined()) grad_input = grad_input.to(input.scalar_type());
    if (grad_weight.defined()) grad_weight = grad_weight.to(weight->scalar_type());
    if (grad_bias.defined()) grad_bias = grad_bias.to(bias_dtype);
    return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
  }
  const Rows g = as_rows(grad_output, normalized_shape.size());
  const Rows x = as_rows(input, normalized_shape.size());
  const OptionalTensor w = contiguous(weight);
  const auto row_mean = mean.expect_contiguous();
  const auto row_rstd = rstd.expect_contiguous();

  LayerNormBackward arguments;
  arguments.rows = x.rows;
  arguments.cols = x.cols;
  arguments.row_stride = x.row_stride;
  arguments.grad_output_row_stride = g.row_stride;
  arguments.grad_output = g.tensor->const_data_ptr();
  arguments.input = x.tensor->const_data_ptr();
  arguments.mean = row_mean->const_data_ptr();
  arguments.rstd = row_rstd->const_data_ptr();
  arguments.input_dtype = dtype_of(input.scalar_type());
  arguments.bias_dtype = dtype_of(bias_dtype);
  arguments.wide_output = wide;
  if (w) {
    arguments.weight = w->const_data_ptr();
    arguments.weight_dtype = dtype_of(w->scalar_type());
  }
  const Place place(input);
  Tensors gradients;
  auto& [grad_input, grad_weight, grad_bias] = gradients;
  if (output_mask[0]) {
    grad_input = place.empty(input.sizes(), input.scalar_type());
    arguments.grad_input = grad_input.mutable_data_ptr();
  }
  if (output_mask[1]) {
    grad_weight = place.empty(normalized_shape, w->scalar_type());
    arguments.grad_weight = grad_weight.mutable_data_ptr();
  }
  if (output_mask[2]) {
    grad_bias = place.empty(normalized_shape, bias_dtype);
    arguments.grad_bias = grad_bias.mutable_data_ptr();
  }
  place.run(arguments);
  return gradients;
}

Tensors layer_norm_backward_kernel(const at::Tensor& grad_output, const at::Tensor& input,
                                   at::IntArrayRef normalized_shape, const at::Tensor& mean,
                                   const at::Tensor& rstd, const OptionalTensor& weight,
                                   OptionalDtype bias_dtype, std::array<bool, 3> output_mask) {
  check_layer_norm_backward("simple_layernorm::layer_norm_backward", grad_output, input,
                            c10::fromIntArrayRefSlow(normalized_shape), mean, rstd, weight,
                            bias_dtype, output_mask);
  return backward_kernel(grad_output, input, normalized_shape, mean, rstd, weight,
                         bias_dtype.value_or(input.scalar_type()), output_mask);
}

void register_kernels(torch::Library& m) {
  m.impl("layer_norm", layer_norm_kernel);
  m.impl("layer_norm_forward", layer_norm_forward_kernel);
  m.impl("layer_norm_backward", layer_norm_backward_kernel);
}

}  // namespace

TORCH_LIBRARY_IMPL(simple_layernorm, CPU, m) { register_kernels(m); }
TORCH_LIBRARY_IMPL(simple_layernorm, CUDA, m) { register_kernels(m); }  // ROCm's key too

}  // namespace simple_layernorm::torch_ops
