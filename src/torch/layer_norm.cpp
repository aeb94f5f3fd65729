// The LayerNorm operators: their schemas, and the C++ functions that call them. What they compute
// stands in layer_norm_device.cpp, ..._meta.cpp (fake tensors), ..._autograd.cpp, ..._autocast.cpp
// and ..._decomposed.cpp (vmap), a file for each kind of PyTorch's dispatch keys.

#include "simple_layernorm/torch/layer_norm.hpp"

#include <torch/library.h>

namespace simple_layernorm::torch_ops {
namespace {

using Tensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

template <class Function>
c10::TypedOperatorHandle<Function> find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                      OptionalDtype output_dtype) {
  static const auto op = find_op<decltype(layer_norm)>("simple_layernorm::layer_norm");
  return op.call(input, normalized_shape, weight, bias, eps, output_dtype);
}

Tensors layer_norm_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                           const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                           OptionalDtype output_dtype) {
  static const auto op =
      find_op<decltype(layer_norm_forward)>("simple_layernorm::layer_norm_forward");
  return op.call(input, normalized_shape, weight, bias, eps, output_dtype);
}

Tensors layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                            c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                            const at::Tensor& rstd, const OptionalTensor& weight,
                            OptionalDtype bias_dtype, std::array<bool, 3> output_mask) {
  static const auto op =
      find_op<decltype(layer_norm_backward)>("simple_layernorm::layer_norm_backward");
  return op.call(grad_output, input, normalized_shape, mean, rstd, weight, bias_dtype, output_mask);
}

TORCH_LIBRARY(simple_layernorm, m) {
  m.def(
      "layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
      "float eps=1e-05, *, ScalarType? output_dtype=None) -> Tensor");
  m.def(
      "layer_norm_forward(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, "
      "float eps, ScalarType? output_dtype=None) -> (Tensor output, Tensor mean, Tensor rstd)");
  m.def(
      "layer_norm_backward(Tensor grad_output, Tensor input, SymInt[] normalized_shape, "
      "Tensor mean, Tensor rstd, Tensor? weight, ScalarType? bias_dtype, bool[3] output_mask) -> "
      "(Tensor grad_input, Tensor grad_weight, Tensor grad_bias)");
}

}  // namespace simple_layernorm::torch_ops
