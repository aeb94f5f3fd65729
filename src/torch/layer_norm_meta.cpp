// The LayerNorm operators on tensors without data: shapes, strides and dtypes that the device's
// kernels will give, for torch.compile, torch.export and the meta device.

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/problem.hpp"

namespace simple_layernorm::torch_ops {
namespace {

using Tensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor layer_norm_meta(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                           const OptionalTensor& weight, const OptionalTensor& bias, double,
                           OptionalDtype output_dtype) {
  check_layer_norm("simple_layernorm::layer_norm", input, normalized_shape, weight, bias,
                   output_dtype);
  return at::empty_symint(input.sym_sizes(),
                          input.options().dtype(output_dtype.value_or(input.scalar_type())));
}

Tensors layer_norm_forward_meta(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                                const OptionalTensor& weight, const OptionalTensor& bias,
                                double eps, OptionalDtype output_dtype) {
  at::Tensor output = layer_norm_meta(input, normalized_shape, weight, bias, eps, output_dtype);
  const auto rows = input.sym_sizes().slice(0, input.dim() - normalized_shape.size());
  const auto options = input.options().dtype(statistic_dtype(input.scalar_type()));
  return {std::move(output), at::empty_symint(rows, options), at::empty_symint(rows, options)};
}

Tensors layer_norm_backward_meta(const at::Tensor& grad_output, const at::Tensor& input,
                                 c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                 const at::Tensor& rstd, const OptionalTensor& weight,
                                 OptionalDtype bias_dtype, std::array<bool, 3> output_mask) {
  check_layer_norm_backward("simple_layernorm::layer_norm_backward", grad_output, input,
                            normalized_shape, mean, rstd, weight, bias_dtype, output_mask);
  Tensors gradients;
  auto& [grad_input, grad_weight, grad_bias] = gradients;
  if (output_mask[0]) grad_input = at::empty_symint(input.sym_sizes(), input.options());
  if (output_mask[1]) grad_weight = at::empty_symint(normalized_shape, weight->options());
  if (output_mask[2]) {
    grad_bias = at::empty_symint(normalized_shape,
                                 input.options().dtype(bias_dtype.value_or(input.scalar_type())));
  }
  return gradients;
}

}  // namespace

TORCH_LIBRARY_IMPL(simple_layernorm, Meta, m) {
  m.impl("layer_norm", layer_norm_meta);
  m.impl("layer_norm_forward", layer_norm_forward_meta);
  m.impl("layer_norm_backward", layer_norm_backward_meta);
}

}  // namespace simple_layernorm::torch_ops
