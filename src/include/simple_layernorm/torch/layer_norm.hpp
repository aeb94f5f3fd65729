// The operators on at::Tensor, by way of PyTorch's dispatcher. Linking simple_layernorm::torch also
// loads them as torch.ops.simple_layernorm.*.
//
//   All run on input's device and current stream without synchronising, and throw c10::Error,
//   before anything is written, for arguments that torch's layer_norm refuses.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/SymIntArrayRef.h>

#include <array>
#include <optional>
#include <tuple>

#pragma GCC visibility push(default)
namespace simple_layernorm::torch_ops {

using OptionalTensor = std::optional<at::Tensor>;
using OptionalDtype = std::optional<at::ScalarType>;

/// LayerNorm over the last normalized_shape.size() dimensions of `input`, whose sizes must equal
/// normalized_shape. float32, float64, float16 or bfloat16; weight and bias have normalized_shape
/// and input's dtype, or float32 with 16-bit input. Returns a contiguous tensor of input's shape
/// and of output_dtype: input's dtype unless given, and only float32 may be given, with 16-bit
/// input. Differentiable to every order, in both modes.
at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const OptionalTensor& weight = {}, const OptionalTensor& bias = {},
                      double eps = 1e-5, OptionalDtype output_dtype = {});

/// The same, not differentiable, with what the backward pass needs: returns (output, mean, rstd).
/// mean and rstd have input's leading shape, are contiguous, and float32 (float64 for float64).
std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_forward(
    const at::Tensor& input, c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
    const OptionalTensor& bias, double eps, OptionalDtype output_dtype);

/// Gradients of layer_norm for a `grad_output` of output's shape and dtype, not differentiable.
/// bias_dtype is bias's, by default input's. Returns (grad_input, grad_weight, grad_bias); those
/// that output_mask does not ask for are undefined and cost nothing.
std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_backward(
    const at::Tensor& grad_output, const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
    const at::Tensor& mean, const at::Tensor& rstd, const OptionalTensor& weight,
    OptionalDtype bias_dtype, std::array<bool, 3> output_mask);

}  // namespace simple_layernorm::torch_ops
#pragma GCC visibility pop
