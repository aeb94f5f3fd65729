// The arguments of a LayerNorm over rows, the same for every backend. Standard library only.
//
//   cpu.hpp and gpu.hpp declare the functions that take them. Both describe the tensor as a matrix
//   [rows, cols]: the normalised dimensions are flattened into cols, all others into rows.
#pragma once

#include <cstdint>

#include "simple_layernorm/dtype.hpp"

namespace simple_layernorm {

/// output[r, c] = (input[r, c] - mean[r]) * rstd[r] * weight[c] + bias[c]
/// with mean[r] the average of row r and rstd[r] = 1 / sqrt(biased variance of row r + eps).
///
/// Preconditions (not checked by the kernels): rows >= 0, cols >= 0; all pointers are valid on the
/// device that runs the kernel and aligned to their own element; output overlaps no input. The
/// caller owns all memory. Strides are in elements.
struct LayerNormForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  ///< distance between two rows of input, in elements
  double eps = 1e-5;            ///< added to the variance, in the square of input's unit

  const void* input = nullptr;   ///< [rows, cols], rows row_stride apart, each row contiguous
  const void* weight = nullptr;  ///< [cols] contiguous, or null for ones
  const void* bias = nullptr;    ///< [cols] contiguous, or null for zeros
  void* output = nullptr;        ///< [rows, cols] contiguous, of output_dtype()
  void* mean = nullptr;          ///< [rows] of statistic_dtype(input_dtype), or null if not wanted
  void* rstd = nullptr;          ///< [rows] of statistic_dtype(input_dtype), or null if not wanted

  Dtype input_dtype = Dtype::float32;
  Dtype weight_dtype = Dtype::float32;  ///< input_dtype; float32 too when input_dtype has 16 bits
  Dtype bias_dtype = Dtype::float32;    ///< likewise, independent of weight_dtype

  /// Output of statistic_dtype(input_dtype) instead of input_dtype: float32 from 16-bit input, as
  /// PyTorch's autocast on a GPU has it, without another rounding. GPU only: the CPU's kernels take
  /// false.
  bool wide_output = false;
  constexpr Dtype output_dtype() const {
    return wide_output ? statistic_dtype(input_dtype) : input_dtype;
  }
};

/// Gradients of LayerNormForward. With h = grad_output * weight, x_hat the normalised input and
/// <.> the average over a row:
///   grad_input  = rstd * (h - <h> - x_hat * <h * x_hat>)
///   grad_weight = sum over rows of grad_output * x_hat
///   grad_bias   = sum over rows of grad_output
/// A null gradient pointer means: not wanted, and nothing is computed for it.
///
/// Preconditions as for LayerNormForward. grad_weight and grad_bias are written, not added to; with
/// rows == 0 they are set to zero.
struct LayerNormBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;              ///< of input, in elements
  std::int64_t grad_output_row_stride = 0;  ///< of grad_output, in elements; 0 repeats one row

  const void* grad_output = nullptr;  ///< [rows, cols], of output_dtype(), each row contiguous
  const void* input = nullptr;        ///< [rows, cols], each row contiguous
  const void* mean = nullptr;         ///< [rows] of statistic_dtype(input_dtype), from the forward
  const void* rstd = nullptr;         ///< [rows] of statistic_dtype(input_dtype), from the forward
  const void* weight = nullptr;       ///< [cols] contiguous, or null for ones
  void* grad_input = nullptr;         ///< [rows, cols] contiguous, of input_dtype
  void* grad_weight = nullptr;        ///< [cols] of weight_dtype
  void* grad_bias = nullptr;          ///< [cols] of bias_dtype

  Dtype input_dtype = Dtype::float32;
  Dtype weight_dtype = Dtype::float32;  ///< of weight and grad_weight
  Dtype bias_dtype = Dtype::float32;    ///< of grad_bias

  /// grad_output of statistic_dtype(input_dtype) instead of input_dtype, as the forward pass with
  /// the same choice makes it. GPU only: the CPU's kernels take false.
  bool wide_output = false;
  constexpr Dtype output_dtype() const {
    return wide_output ? statistic_dtype(input_dtype) : input_dtype;
  }
};

}  // namespace simple_layernorm
