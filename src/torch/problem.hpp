// A call's arguments, checked: from torch's tensors and normalized_shape to rows and columns.
#pragma once

#include <ATen/ATen.h>

#include "simple_layernorm/dtype.hpp"

namespace simple_layernorm::torch_ops {

using OptionalTensor = std::optional<at::Tensor>;

/// Throws torch's error, naming `op`, unless the arguments describe a LayerNorm: shapes, dtypes,
/// layout and devices. Works on fake tensors and symbolic sizes.
void check_layer_norm(const char* op, const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const OptionalTensor& weight, const OptionalTensor& bias);

/// The library's name of a tensor's dtype. Throws NotImplementedError for one no kernel has.
Dtype dtype_of(const char* op, const at::Tensor& tensor);

/// Sizes and row stride of a tensor seen as rows, and the tensor that they describe: the same one if
/// its normalised dimensions are contiguous and its rows equally far apart, else a contiguous copy.
struct Rows {
  at::Tensor tensor;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_stride;
};
Rows as_rows(const at::Tensor& tensor, std::size_t normalized_dims);

}  // namespace simple_layernorm::torch_ops
