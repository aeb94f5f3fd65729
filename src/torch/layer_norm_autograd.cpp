// Derivatives of layer_norm. First-order gradients come from the kernels; whatever asks for more
// (a forward-mode tangent, a torch.func transform, a derivative of the backward pass) gets the
// decomposition into ATen operators. A node of the graph alone would refuse torch.func and
// silently drop tangents.

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include "torch/layer_norm_decomposed.hpp"
#include "torch/problem.hpp"

namespace simple_layernorm::torch_ops {
namespace {

using Tensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
namespace compiled = torch::dynamo::autograd;

bool has_tangent(const OptionalTensor& tensor) {
  return is_present(tensor) && tensor->_fw_grad(/*level=*/0).defined();
}

bool requires_grad(const OptionalTensor& tensor) {
  return is_present(tensor) && tensor->requires_grad();
}

/// Whether a torch.func transform is running; functorch includes this key as long as one is.
bool in_functorch_transform() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

/// What a forward pass leaves behind for its backward pass, beside tensors.
struct Call {
  std::int64_t normalized_dims = 0;
  double eps = 0;
  OptionalDtype bias_dtype;
};

variable_list gradients(const at::Tensor& g, const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& mean, const at::Tensor& rstd, const Call& call,
                        std::array<bool, 3> wanted) {
  if (!g.defined()) return variable_list(3);
  auto [grad_input, grad_weight, grad_bias] = [&] {
    if (at::GradMode::is_enabled() || has_tangent(g) || has_tangent(x) || has_tangent(weight)) {
      return layer_norm_backward_decomposed(g, x, call.normalized_dims, weight, call.eps,
                                            call.bias_dtype, wanted);
    }
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto normalized_shape = x.sym_sizes().slice(x.dim() - call.normalized_dims);
    return layer_norm_backward(g, x, normalized_shape, mean, rstd, weight, call.bias_dtype, wanted);
  }();
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

/// The backward pass in autograd's graph. Not a torch::autograd::Function, whose bookkeeping makes
/// a call of (4, 16) numbers slower than torch's own.
class LayerNormBackwardNode : public Node {
 public:
  SavedVariable input;
  SavedVariable weight;
  SavedVariable mean;
  SavedVariable rstd;
  Call call;

  LayerNormBackwardNode(const at::Tensor& input, const OptionalTensor& weight,
                        const at::Tensor& mean, const at::Tensor& rstd, Call call)
      : input(input, /*is_output=*/false),
        weight(weight, /*is_output=*/false),
        mean(mean, /*is_output=*/false),
        rstd(rstd, /*is_output=*/false),
        call(call) {}

  std::string name() const override { return "LayerNormBackward"; }

  variable_list apply(variable_list&& grad_outputs) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return gradients(grad_outputs[0], input.unpack(), weight.unpack(), mean.unpack(), rstd.unpack(),
                     call, wanted());
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable* saved : {&input, &weight, &mean, &rstd}) saved->reset_data();
  }

  // Compiled autograd: what a compiled backward pass depends on, and a function of it to trace.

  void compiled_args(compiled::CompiledNodeArgs& args) const override {
    for (const SavedVariable* saved : {&input, &weight, &mean, &rstd}) args.collect(*saved, false);
    args.collect(call.normalized_dims);
    args.collect(call.eps);
    args.collect(call.bias_dtype);
  }

  variable_list apply_with_saved(const variable_list& grad_outputs,
                                 compiled::SwapSavedVariables& swap) override {
    for (SavedVariable* saved : {&input, &weight, &mean, &rstd}) swap.before(*saved);
    std::vector<c10::IValue> packed;
    std::vector<c10::TypePtr> types;
    for (SavedVariable* saved : {&input, &weight, &mean, &rstd}) {
      packed.emplace_back(saved->unpack());
      types.push_back(c10::TensorType::get());
    }
    for (const c10::IValue& value :
         {c10::IValue(call.normalized_dims), c10::IValue(call.eps), c10::IValue(call.bias_dtype)}) {
      packed.push_back(value);
      types.push_back(value.type());
    }
    for (const bool is_wanted : wanted()) {
      packed.emplace_back(is_wanted);
      types.push_back(c10::BoolType::get());
    }
    const auto& python = compiled::getPyCompilerInterface();
    const auto function =
        python->bind_function(swap.get_py_compiler(), name(), gradients_of_packed, types,
                              /*is_custom_function=*/true, /*is_traceable=*/true);
    variable_list result = python->call_function(
        swap.get_py_compiler(), "apply_functional", function, grad_outputs, packed,
        compiled::IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
            compiled::get_input_metadata(next_edges())));
    for (SavedVariable* saved : {&input, &weight, &mean, &rstd}) swap.after(*saved);
    return result;
  }

 private:
  std::array<bool, 3> wanted() const {
    return {task_should_compute_output(0), task_should_compute_output(1),
            task_should_compute_output(2)};
  }

  static variable_list gradients_of_packed(const variable_list& grad_outputs,
                                           const std::vector<c10::IValue>& p) {
    const Call call{p[4].toInt(), p[5].toDouble(), p[6].toOptional<at::ScalarType>()};
    return gradients(grad_outputs[0], p[0].toTensor(), p[1].toTensor(), p[2].toTensor(),
                     p[3].toTensor(), call, {p[7].toBool(), p[8].toBool(), p[9].toBool()});
  }
};

/// torch keeps nodes in intrusive pointers since 2.13, before in shared ones.
template <class NodeType, class... Arguments>
auto make_node(const Arguments&... arguments) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, NodeType>) {
    return c10::make_intrusive<NodeType>(arguments...);
  } else {
    return std::shared_ptr<NodeType>(new NodeType(arguments...),
                                     [](NodeType* n) { deleteNode(n); });
  }
}

at::Tensor layer_norm_recorded(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                               const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                               OptionalDtype output_dtype) {
  auto [output, mean, rstd] = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return layer_norm_forward(input, normalized_shape, weight, bias, eps, output_dtype);
  }();
  const Call call{static_cast<std::int64_t>(normalized_shape.size()), eps,
                  is_present(bias) ? OptionalDtype(bias->scalar_type()) : OptionalDtype()};
  const auto node = make_node<LayerNormBackwardNode>(input, weight, mean, rstd, call);
  node->set_next_edges(torch::autograd::collect_next_edges(input, weight, bias));
  torch::autograd::set_history(output, node);
  return output;
}

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
    return layer_norm_recorded(input, normalized_shape, weight, bias, eps, output_dtype);
  }
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(kOp, "").typed<decltype(layer_norm)>();
  return op.redispatch(keys & c10::after_autograd_keyset, input, normalized_shape, weight, bias,
                       eps, output_dtype);
}

/// As torch's autogradNotImplementedFallback(), whose walk over schema and boxed arguments takes a
/// twentieth of a call of (8, 64) numbers (EPYC).
Tensors layer_norm_backward_autograd(c10::DispatchKeySet keys, const at::Tensor& grad_output,
                                     const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                                     const at::Tensor& mean, const at::Tensor& rstd,
                                     const OptionalTensor& weight, OptionalDtype bias_dtype,
                                     std::array<bool, 3> output_mask) {
  constexpr const char* kOp = "simple_layernorm::layer_norm_backward";
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(kOp, "")
                             .typed<decltype(layer_norm_backward)>();
  TORCH_CHECK_NOT_IMPLEMENTED(!(has_tangent(grad_output) || has_tangent(input) ||
                                has_tangent(mean) || has_tangent(rstd) || has_tangent(weight)),
                              kOp, " is not differentiable: expected arguments without tangents");
  Tensors gradients = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return op.redispatch(keys & c10::after_autograd_keyset, grad_output, input, normalized_shape,
                         mean, rstd, weight, bias_dtype, output_mask);
  }();
  using namespace torch::autograd;
  if (compute_requires_grad(grad_output, input, mean, rstd, weight)) {
    const auto node = make_node<NotImplemented>(std::string(kOp));
    node->set_next_edges(collect_next_edges(grad_output, input, mean, rstd, weight));
    auto& [grad_input, grad_weight, grad_bias] = gradients;
    for (const at::Tensor* g : {&grad_input, &grad_weight, &grad_bias}) set_history(*g, node);
  }
  return gradients;
}

}  // namespace

TORCH_LIBRARY_IMPL(simple_layernorm, Autograd, m) {
  m.impl("layer_norm", TORCH_FN(layer_norm_autograd));
  m.impl("layer_norm_forward", torch::autograd::autogradNotImplementedFallback());
  m.impl("layer_norm_backward", TORCH_FN(layer_norm_backward_autograd));
}

}  // namespace simple_layernorm::torch_ops
