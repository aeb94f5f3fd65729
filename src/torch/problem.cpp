#include "torch/problem.hpp"

#include <c10/util/accumulate.h>

namespace simple_layernorm::torch_ops {
namespace {

at::IntArrayRef sizes_of(const at::Tensor& tensor, at::IntArrayRef) { return tensor.sizes(); }
c10::SymIntArrayRef sizes_of(const at::Tensor& tensor, c10::SymIntArrayRef) {
  return tensor.sym_sizes();
}

bool is_parameter_dtype(at::ScalarType dtype, const at::Tensor& input) {
  return dtype == input.scalar_type() || (dtype == at::kFloat && has_16_bits(input.scalar_type()));
}

const char* or_float(const at::Tensor& input) {
  return has_16_bits(input.scalar_type()) ? " or Float" : "";
}

void check_device(const char* op, const char* name, const at::Tensor& tensor,
                  const at::Tensor& input) {
  TORCH_CHECK(tensor.device() == input.device(), op, ": expected ", name, " on input's device, ",
              input.device(), ", but got ", tensor.device());
}

template <class Sizes>
void check_parameter(const char* op, const char* name, const at::Tensor& input,
                     Sizes normalized_shape, const OptionalTensor& parameter) {
  if (!is_present(parameter)) return;
  TORCH_CHECK(parameter->layout() == at::kStrided, op, ": expected ", name,
              " of strided layout, but got ", parameter->layout());
  TORCH_CHECK(sizes_of(*parameter, normalized_shape).equals(normalized_shape), op, ": expected ",
              name, " of shape normalized_shape = ", normalized_shape, ", but got shape ",
              sizes_of(*parameter, normalized_shape));
  check_device(op, name, *parameter, input);
  TORCH_CHECK(is_parameter_dtype(parameter->scalar_type(), input), op, ": expected ", name,
              " of input's dtype ", input.scalar_type(), or_float(input), ", but got ",
              parameter->scalar_type());
}

template <class Sizes>
void check_input(const char* op, const at::Tensor& input, Sizes normalized_shape) {
  TORCH_CHECK(!normalized_shape.empty(), op,
              ": expected normalized_shape of at least one dimension, but got ", normalized_shape);
  TORCH_CHECK(input.layout() == at::kStrided, op, ": expected input of strided layout, but got ",
              input.layout());
  const Sizes sizes = sizes_of(input, normalized_shape);
  TORCH_CHECK(sizes.size() >= normalized_shape.size() &&
                  sizes.slice(sizes.size() - normalized_shape.size()).equals(normalized_shape),
              op,
              ": expected input whose last dimensions are normalized_shape = ", normalized_shape,
              ", but got shape ", sizes);
  switch (input.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16: return;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, op, ": expected input of dtype Float, Double, Half or BFloat16, but got ",
          input.scalar_type());
  }
}

template <class Sizes>
void check(const char* op, const at::Tensor& input, Sizes normalized_shape,
           const OptionalTensor& weight, const OptionalTensor& bias, OptionalDtype output_dtype) {
  check_input(op, input, normalized_shape);
  check_parameter(op, "weight", input, normalized_shape, weight);
  check_parameter(op, "bias", input, normalized_shape, bias);
  TORCH_CHECK(!output_dtype || is_parameter_dtype(*output_dtype, input), op,
              ": expected output_dtype to be input's dtype ", input.scalar_type(), or_float(input),
              ", but got ", *output_dtype);
}

}  // namespace

void check_layer_norm(const char* op, const at::Tensor& input, at::IntArrayRef normalized_shape,
                      const OptionalTensor& weight, const OptionalTensor& bias,
                      OptionalDtype output_dtype) {
  check(op, input, normalized_shape, weight, bias, output_dtype);
}

void check_layer_norm(const char* op, const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const OptionalTensor& weight, const OptionalTensor& bias,
                      OptionalDtype output_dtype) {
  check(op, input, normalized_shape, weight, bias, output_dtype);
}

void check_layer_norm_backward(const char* op, const at::Tensor& grad_output,
                               const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                               const at::Tensor& mean, const at::Tensor& rstd,
                               const OptionalTensor& weight, OptionalDtype bias_dtype,
                               std::array<bool, 3> output_mask) {
  check_input(op, input, normalized_shape);
  check_parameter(op, "weight", input, normalized_shape, weight);
  TORCH_CHECK(!output_mask[1] || is_present(weight), op,
              ": expected a weight, whose gradient output_mask asks for, but got none");
  TORCH_CHECK(!bias_dtype || is_parameter_dtype(*bias_dtype, input), op,
              ": expected bias_dtype to be input's dtype ", input.scalar_type(), or_float(input),
              ", but got ", *bias_dtype);
  const auto shape = input.sym_sizes();
  TORCH_CHECK(
      grad_output.sym_sizes().equals(shape) && is_parameter_dtype(grad_output.scalar_type(), input),
      op, ": expected grad_output of shape ", shape, " and dtype ", input.scalar_type(),
      or_float(input), ", but got ", grad_output.sym_sizes(), " of ", grad_output.scalar_type());
  check_device(op, "grad_output", grad_output, input);
  const auto leading = shape.slice(0, shape.size() - normalized_shape.size());
  for (const at::Tensor* statistic : {&mean, &rstd}) {
    const char* name = statistic == &mean ? "mean" : "rstd";
    TORCH_CHECK(statistic->sym_sizes().equals(leading) &&
                    statistic->scalar_type() == statistic_dtype(input.scalar_type()),
                op, ": expected ", name, " of shape ", leading, " and dtype ",
                statistic_dtype(input.scalar_type()), ", but got ", statistic->sym_sizes(), " of ",
                statistic->scalar_type());
    check_device(op, name, *statistic, input);
  }
}

Dtype dtype_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return Dtype::float64;
    case at::kHalf: return Dtype::float16;
    case at::kBFloat16: return Dtype::bfloat16;
    default: return Dtype::float32;
  }
}

Rows as_rows(const at::Tensor& tensor, std::size_t normalized_dims) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  const std::size_t split = sizes.size() - normalized_dims;
  const std::int64_t rows = c10::multiply_integers(sizes.slice(0, split));
  const std::int64_t cols = c10::multiply_integers(sizes.slice(split));
  if (tensor.is_contiguous())
    return {c10::MaybeOwned<at::Tensor>::borrowed(tensor), rows, cols, cols};

  // Dimensions of size 1 have strides that nobody reads.
  bool contiguous_cols = true;
  std::int64_t cols_below = 1;
  for (std::size_t i = sizes.size(); i-- > split;) {
    contiguous_cols = contiguous_cols && (sizes[i] == 1 || strides[i] == cols_below);
    cols_below *= sizes[i];
  }
  bool even_rows = true;
  std::int64_t row_stride = 0;
  std::int64_t rows_below = 0;
  for (std::size_t i = split; i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (rows_below == 0) {
      row_stride = strides[i];
      rows_below = sizes[i];
    } else {
      even_rows = even_rows && strides[i] == row_stride * rows_below;
      rows_below *= sizes[i];
    }
  }
  if (contiguous_cols && even_rows) {
    return {c10::MaybeOwned<at::Tensor>::borrowed(tensor), rows, cols, row_stride};
  }
  const bool one_row = even_rows && row_stride == 0 && rows > 0;
  at::Tensor copy = one_row
                        ? tensor.as_strided(sizes.slice(split), strides.slice(split)).contiguous()
                        : tensor.contiguous();
  return {c10::MaybeOwned<at::Tensor>::owned(std::move(copy)), rows, cols, one_row ? 0 : cols};
}

}  // namespace simple_layernorm::torch_ops
