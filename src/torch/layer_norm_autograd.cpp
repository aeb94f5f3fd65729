// Derivatives of layer_norm. First-order gradients come from the kernels; whatever asks for more
// (a forward-mode tangent, a torch.func transform, a derivative of the backward pass) gets the
// decomposition into ATen operators. A C++ autograd Function alone would refuse torch.func and
// silently drop tangents.

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch/layer_norm_decomposed.hpp"
#include "torch/problem.hpp"

namespace simple_layernorm::torch_ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool has_tangent(const at::Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}
bool has_tangent(const OptionalTensor& tensor) { return tensor && has_tangent(*tensor); }

bool requires_grad(const OptionalTensor& tensor) {
  return is_present(tensor) && tensor->requires_grad();
}

/// Whether a torch.func transform is running; functorch includes this key as long as one is.
bool in_functorch_transform() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

class LayerNormFunction : public torch::autograd::Function<LayerNormFunction> {
 public:
  static constexpr bool is_traceable = true;  // backward is torch operators only: compiled autograd

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                            const OptionalTensor& bias, double eps, OptionalDtype output_dtype) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [output, mean, rstd] =
        layer_norm_forward(input, normalized_shape, weight, bias, eps, output_dtype);
    const bool has_weight = is_present(weight);
    context->save_for_backward({input, has_weight ? *weight : at::Tensor(), mean, rstd});
    context->saved_data["normalized_dims"] = static_cast<std::int64_t>(normalized_shape.size());
    context->saved_data["eps"] = eps;
    if (is_present(bias)) context->saved_data["bias_dtype"] = bias->scalar_type();
    return output;
  }

  static variable_list backward(AutogradContext* context, variable_list grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& grad_output = grad_outputs[0];
    const at::Tensor& input = saved[0];
    const OptionalTensor weight = saved[1].defined() ? OptionalTensor(saved[1]) : OptionalTensor();
    const std::int64_t normalized_dims = context->saved_data["normalized_dims"].toInt();
    const double eps = context->saved_data["eps"].toDouble();
    const auto bias = context->saved_data.find("bias_dtype");
    const bool has_bias = bias != context->saved_data.end();
    const OptionalDtype bias_dtype =
        has_bias ? OptionalDtype(bias->second.toScalarType()) : OptionalDtype();

    // Autograd counts the tensors that were there.
    const std::size_t bias_index = weight ? 2 : 1;
    const std::array<bool, 3> wanted = {context->needs_input_grad(0),
                                        weight && context->needs_input_grad(1),
                                        has_bias && context->needs_input_grad(bias_index)};

    const bool differentiable = at::GradMode::is_enabled() || has_tangent(grad_output) ||
                                has_tangent(input) || has_tangent(weight);
    const auto gradients = [&] {
      if (differentiable) {
        return layer_norm_backward_decomposed(grad_output, input, normalized_dims, weight, eps,
                                              bias_dtype, wanted);
      }
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      const auto normalized_shape = input.sym_sizes().slice(input.dim() - normalized_dims);
      return layer_norm_backward(grad_output, input, normalized_shape, saved[2], saved[3], weight,
                                 bias_dtype, wanted);
    }();
    const auto& [grad_input, grad_weight, grad_bias] = gradients;
    const at::Tensor none;
    return {grad_input, none, grad_weight, grad_bias, none, none};  // one for each argument
  }
};

at::Tensor layer_norm_autograd(c10::DispatchKeySet keys, const at::Tensor& input,
                               c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                               const OptionalTensor& bias, double eps, OptionalDtype output_dtype) {
  constexpr const char* kOp = "simple_layernorm::layer_norm";
  if (in_functorch_transform() || has_tangent(input) || has_tangent(weight) || has_tangent(bias)) {
    check_layer_norm(kOp, input, normalized_shape, weight, bias, output_dtype);
    return layer_norm_decomposed(input, normalized_shape, weight, bias, eps, output_dtype);
  }
  if (at::GradMode::is_enabled() &&
      (input.requires_grad() || requires_grad(weight) || requires_grad(bias))) {
    return LayerNormFunction::apply(input, normalized_shape, weight, bias, eps, output_dtype);
  }
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(kOp, "").typed<decltype(layer_norm)>();
  return op.redispatch(keys & c10::after_autograd_keyset, input, normalized_shape, weight, bias,
                       eps, output_dtype);
}

}  // namespace

TORCH_LIBRARY_IMPL(simple_layernorm, Autograd, m) {
  m.impl("layer_norm", TORCH_FN(layer_norm_autograd));
  m.impl("layer_norm_forward", torch::autograd::autogradNotImplementedFallback());
  m.impl("layer_norm_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace simple_layernorm::torch_ops
