// layer_norm under autocast, with torch's result dtypes. On a GPU that is float32 whatever the
// input, and the kernels write it without a cast before or after. On the CPU torch leaves
// layer_norm alone, and so nothing is registered.

#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "torch/problem.hpp"

namespace simple_layernorm::torch_ops {
namespace {

/// weight and bias of a dtype that the kernels take beside input's are left as they are.
OptionalTensor as_parameter(const OptionalTensor& parameter, at::ScalarType input_dtype) {
  if (!is_present(parameter)) return {};
  if (parameter->scalar_type() == input_dtype && has_16_bits(input_dtype)) return parameter;
  return at::autocast::cached_cast(at::kFloat, *parameter, c10::DeviceType::CUDA);
}

at::Tensor layer_norm_autocast(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                               const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                               OptionalDtype output_dtype) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  const at::Tensor x = has_16_bits(input.scalar_type())
                           ? input
                           : at::autocast::cached_cast(at::kFloat, input, c10::DeviceType::CUDA);
  const bool wide = has_16_bits(x.scalar_type()) && x.is_cuda();
  return layer_norm(x, normalized_shape, as_parameter(weight, x.scalar_type()),
                    as_parameter(bias, x.scalar_type()), eps,
                    wide ? OptionalDtype(at::kFloat) : output_dtype);
}

}  // namespace

TORCH_LIBRARY_IMPL(simple_layernorm, AutocastCUDA, m) { m.impl("layer_norm", layer_norm_autocast); }

}  // namespace simple_layernorm::torch_ops
