#include "torch/layer_norm_decomposed.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include <numeric>
#include <vector>

#include "torch/problem.hpp"

namespace simple_layernorm::torch_ops {
namespace {

using Dims = std::vector<std::int64_t>;
using Tensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Dims last_dims(std::int64_t count) {
  Dims dims(count);
  std::iota(dims.begin(), dims.end(), -count);
  return dims;
}

at::Tensor mean_of_row(const at::Tensor& x, const Dims& dims) { return x.mean(dims, true); }

at::Tensor sum_over_rows(const at::Tensor& x, std::int64_t normalized_dims) {
  Dims dims(x.dim() - normalized_dims);
  std::iota(dims.begin(), dims.end(), 0);
  return dims.empty() ? x : x.sum(dims);  // sum({}) would sum everything
}

struct Normalised {
  at::Tensor x_hat;
  at::Tensor mean;
  at::Tensor rstd;
};

// The second subtraction takes out the rounding of the mean, as in math/layer_norm.hpp.
Normalised normalise(const at::Tensor& input, const Dims& dims, double eps) {
  const at::Tensor x = input.to(statistic_dtype(input.scalar_type()));
  const at::Tensor shift = mean_of_row(x, dims);
  const at::Tensor shifted = x - shift;
  const at::Tensor correction = mean_of_row(shifted, dims);
  const at::Tensor centred = shifted - correction;
  const at::Tensor rstd = (mean_of_row(centred * centred, dims) + eps).rsqrt();
  return {centred * rstd, shift + correction, rstd};
}

at::Tensor scale_and_shift(at::Tensor x_hat, const OptionalTensor& weight,
                           const OptionalTensor& bias, at::ScalarType output_dtype) {
  if (is_present(weight)) x_hat = x_hat * *weight;
  if (is_present(bias)) x_hat = x_hat + *bias;
  return x_hat.to(output_dtype);
}

Tensors gradients(const at::Tensor& grad_output, const at::Tensor& x_hat, const at::Tensor& rstd,
                  const Dims& dims, const OptionalTensor& weight, at::ScalarType input_dtype,
                  at::ScalarType bias_dtype, std::array<bool, 3> output_mask) {
  const auto normalized_dims = static_cast<std::int64_t>(dims.size());
  const at::Tensor g = grad_output.to(x_hat.scalar_type());
  Tensors result;
  auto& [grad_input, grad_weight, grad_bias] = result;
  if (output_mask[0]) {
    const at::Tensor h = is_present(weight) ? g * *weight : g;
    const at::Tensor centred_h = h - mean_of_row(h, dims);
    grad_input = ((centred_h - x_hat * mean_of_row(h * x_hat, dims)) * rstd).to(input_dtype);
  }
  if (output_mask[1]) {
    grad_weight = sum_over_rows(g * x_hat, normalized_dims).to(weight->scalar_type());
  }
  if (output_mask[2]) grad_bias = sum_over_rows(g, normalized_dims).to(bias_dtype);
  return result;
}

at::Tensor layer_norm_batched(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                              const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                              OptionalDtype output_dtype) {
  check_layer_norm("simple_layernorm::layer_norm", input, normalized_shape, weight, bias,
                   output_dtype);
  return layer_norm_decomposed(input, normalized_shape, weight, bias, eps, output_dtype);
}

Tensors layer_norm_forward_batched(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                                   const OptionalTensor& weight, const OptionalTensor& bias,
                                   double eps, OptionalDtype output_dtype) {
  check_layer_norm("simple_layernorm::layer_norm", input, normalized_shape, weight, bias,
                   output_dtype);
  const Normalised row = normalise(input, last_dims(normalized_shape.size()), eps);
  const auto rows = input.sym_sizes().slice(0, input.dim() - normalized_shape.size());
  return {scale_and_shift(row.x_hat, weight, bias, output_dtype.value_or(input.scalar_type())),
          row.mean.reshape_symint(rows), row.rstd.reshape_symint(rows)};
}

// Reached when only gradients are batched: torch.autograd.grad(..., is_grads_batched=True).
Tensors layer_norm_backward_batched(const at::Tensor& grad_output, const at::Tensor& input,
                                    c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                    const at::Tensor& rstd, const OptionalTensor& weight,
                                    OptionalDtype bias_dtype, std::array<bool, 3> output_mask) {
  check_layer_norm_backward("simple_layernorm::layer_norm_backward", grad_output, input,
                            normalized_shape, mean, rstd, weight, bias_dtype, output_mask);
  const Dims dims = last_dims(normalized_shape.size());
  std::vector<c10::SymInt> kept(mean.sym_sizes().begin(), mean.sym_sizes().end());
  kept.insert(kept.end(), dims.size(), 1);
  const at::Tensor row_rstd = rstd.reshape_symint(kept);
  const at::Tensor x0 = (input.to(mean.scalar_type()) - mean.reshape_symint(kept)) * row_rstd;
  return gradients(grad_output, x0 - mean_of_row(x0, dims), row_rstd, dims, weight,
                   input.scalar_type(), bias_dtype.value_or(input.scalar_type()), output_mask);
}

}  // namespace

at::Tensor layer_norm_decomposed(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                                 const OptionalTensor& weight, const OptionalTensor& bias,
                                 double eps, OptionalDtype output_dtype) {
  const Normalised row = normalise(input, last_dims(normalized_shape.size()), eps);
  return scale_and_shift(row.x_hat, weight, bias, output_dtype.value_or(input.scalar_type()));
}

Tensors layer_norm_backward_decomposed(const at::Tensor& grad_output, const at::Tensor& input,
                                       std::int64_t normalized_dims, const OptionalTensor& weight,
                                       double eps, OptionalDtype bias_dtype,
                                       std::array<bool, 3> output_mask) {
  const Dims dims = last_dims(normalized_dims);
  const Normalised row = normalise(input, dims, eps);
  return gradients(grad_output, row.x_hat, row.rstd, dims, weight, input.scalar_type(),
                   bias_dtype.value_or(input.scalar_type()), output_mask);
}

// vmap: one batched decomposition instead of a loop over the samples.
TORCH_LIBRARY_IMPL(simple_layernorm, FuncTorchBatched, m) {
  m.impl("layer_norm", layer_norm_batched);
  m.impl("layer_norm_forward", layer_norm_forward_batched);
  m.impl("layer_norm_backward", layer_norm_backward_batched);
}

}  // namespace simple_layernorm::torch_ops
