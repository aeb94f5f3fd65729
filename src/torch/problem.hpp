// A call's arguments, checked: from torch's tensors and normalized_shape to rows and columns.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/MaybeOwned.h>

#include "simple_layernorm/dtype.hpp"
#include "simple_layernorm/torch/layer_norm.hpp"

namespace simple_layernorm::torch_ops {

/// Throws torch's error, naming `op`, unless the arguments describe a LayerNorm: shapes, dtypes,
/// layout and devices. The second works on fake tensors and symbolic sizes.
void check_layer_norm(const char* op, const at::Tensor& input, at::IntArrayRef normalized_shape,
                      const OptionalTensor& weight, const OptionalTensor& bias,
                      OptionalDtype output_dtype);
void check_layer_norm(const char* op, const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const OptionalTensor& weight, const OptionalTensor& bias,
                      OptionalDtype output_dtype);

/// Likewise for the arguments of the backward pass.
void check_layer_norm_backward(const char* op, const at::Tensor& grad_output,
                               const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                               const at::Tensor& mean, const at::Tensor& rstd,
                               const OptionalTensor& weight, OptionalDtype bias_dtype,
                               std::array<bool, 3> output_mask);

/// The library's name of a dtype that has been checked.
Dtype dtype_of(at::ScalarType dtype);

/// dtype in which statistics are computed and kept: float64 for float64, else float32.
inline at::ScalarType statistic_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

inline bool has_16_bits(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16;
}

inline bool is_present(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}

/// Sizes and row stride of a tensor seen as rows, and the tensor that they describe: the same one
/// if its normalised dimensions are contiguous and its rows equally far apart, one row with stride
/// 0 if all rows are the same memory, else a contiguous copy.
struct Rows {
  c10::MaybeOwned<at::Tensor> tensor;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_stride;
};
Rows as_rows(const at::Tensor& tensor, std::size_t normalized_dims);

}  // namespace simple_layernorm::torch_ops
