// LayerNorm and its gradients as a handful of ATen operators, for where the kernels cannot be:
// forward-mode derivatives, torch.func, derivatives of the backward pass. Everything here is
// differentiable to every order, forwards and backwards, because ATen's operators are.
#pragma once

#include "simple_layernorm/torch/layer_norm.hpp"

namespace simple_layernorm::torch_ops {

/// layer_norm, computed in the dtype of its statistics; the arguments are checked.
at::Tensor layer_norm_decomposed(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                                 const OptionalTensor& weight, const OptionalTensor& bias,
                                 double eps, OptionalDtype output_dtype);

/// layer_norm_backward as a function of input, instead of stored statistics of it.
std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_backward_decomposed(
    const at::Tensor& grad_output, const at::Tensor& input, std::int64_t normalized_dims,
    const OptionalTensor& weight, double eps, OptionalDtype bias_dtype,
    std::array<bool, 3> output_mask);

}  // namespace simple_layernorm::torch_ops
