#include "torch/problem.hpp"

namespace simple_layernorm::torch_ops {
namespace {

void check_parameter(const char* op, const char* name, const at::Tensor& input,
                     c10::SymIntArrayRef normalized_shape, const OptionalTensor& parameter) {
  if (!parameter.has_value() || !parameter->defined()) return;
  TORCH_CHECK(parameter->sym_sizes().equals(normalized_shape), op, ": expected ", name,
              " to have normalized_shape ", normalized_shape, ", but got shape ",
              parameter->sym_sizes());
  TORCH_CHECK(parameter->device() == input.device(), op, ": expected ", name,
              " on input's device, ", input.device(), ", but got ", parameter->device());
  const bool sixteen_bits = input.scalar_type() == at::kHalf || input.scalar_type() == at::kBFloat16;
  TORCH_CHECK(parameter->scalar_type() == input.scalar_type() ||
                  (sixteen_bits && parameter->scalar_type() == at::kFloat),
              op, ": expected ", name, " of input's dtype ", input.scalar_type(),
              sixteen_bits ? " or Float" : "", ", but got ", parameter->scalar_type());
}

}  // namespace

Dtype dtype_of(const char* op, const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return Dtype::float32;
    case at::kDouble: return Dtype::float64;
    case at::kHalf: return Dtype::float16;
    case at::kBFloat16: return Dtype::bfloat16;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, op, ": expected input of dtype Float, Double, Half or BFloat16, but got ",
                                  tensor.scalar_type());
  }
}

void check_layer_norm(const char* op, const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const OptionalTensor& weight, const OptionalTensor& bias) {
  TORCH_CHECK(!normalized_shape.empty(), op,
              ": expected normalized_shape of at least one dimension, but got ", normalized_shape);
  TORCH_CHECK(input.layout() == at::kStrided, op, ": expected a strided input, but got layout ", input.layout());
  dtype_of(op, input);
  const auto sizes = input.sym_sizes();
  TORCH_CHECK(sizes.size() >= normalized_shape.size() &&
                  sizes.slice(sizes.size() - normalized_shape.size()).equals(normalized_shape),
              op, ": expected input whose last dimensions are normalized_shape ", normalized_shape,
              ", but got shape ", sizes);
  check_parameter(op, "weight", input, normalized_shape, weight);
  check_parameter(op, "bias", input, normalized_shape, bias);
}

Rows as_rows(const at::Tensor& tensor, std::size_t normalized_dims) {
  const auto sizes = tensor.sizes();
  const std::size_t split = sizes.size() - normalized_dims;
  const std::int64_t rows = c10::multiply_integers(sizes.slice(0, split));
  const std::int64_t cols = c10::multiply_integers(sizes.slice(split));

  // Dimensions of size 1 have strides that nobody reads.
  std::int64_t expected = 1;
  bool in_place = true;
  for (std::size_t i = sizes.size(); i-- > split;) {
    in_place = in_place && (sizes[i] == 1 || tensor.stride(i) == expected);
    expected *= sizes[i];
  }
  std::int64_t row_stride = cols;
  std::int64_t rows_below = 0;  // rows that the dimensions seen so far hold
  for (std::size_t i = split; i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (rows_below == 0) {
      row_stride = tensor.stride(i);
      rows_below = sizes[i];
    } else {
      in_place = in_place && tensor.stride(i) == row_stride * rows_below;
      rows_below *= sizes[i];
    }
  }
  if (in_place) return {tensor, rows, cols, row_stride};
  return {tensor.contiguous(), rows, cols, cols};
}

}  // namespace simple_layernorm::torch_ops
