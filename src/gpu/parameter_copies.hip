// Copies of weight and bias, see parameter_copies.hpp.

#include "gpu/parameter_copies.hpp"

#include "gpu/elements.hpp"
#include "gpu/launch.hpp"
#include "gpu/launch_plan.hpp"
#include "gpu/row_access.hpp"

namespace simple_layernorm::gpu {
namespace {

constexpr int kCopyThreads = 256;

/// Columns, rounded up to whole packs.
std::int64_t stride_of(std::int64_t cols) { return divide_up(cols, 4) * 4; }

template <class Element>
__global__ void __launch_bounds__(kCopyThreads)
    copy_forward_parameters(LayerNormForward a, float* weights, float* biases) {
  await_earlier_work();
  const MixedArray<Element> weight(a.weight, a.weight_dtype, 1.0f);
  const MixedArray<Element> bias(a.bias, a.bias_dtype, 0.0f);
  const std::int64_t col = std::int64_t{blockIdx.x} * kCopyThreads + threadIdx.x;
  if (col >= a.cols) return;
  weights[col] = weight[col];
  biases[col] = bias[col];
}

}  // namespace

std::size_t parameter_copies_bytes(const LayerNormForward& a) {
  bool are_needed = false;
  with_packed_type(a.input_dtype,
                   [&](auto element) { are_needed = !takes_parameters<decltype(element)>(a); });
  return are_needed ? static_cast<std::size_t>(2 * stride_of(a.cols)) * sizeof(float) : 0;
}

LayerNormForward with_parameter_copies(const LayerNormForward& a, void* workspace, void* stream) {
  LayerNormForward copied = a;
  float* const weights = static_cast<float*>(workspace);
  float* const biases = weights + stride_of(a.cols);
  copied.weight = weights;
  copied.bias = biases;
  copied.weight_dtype = copied.bias_dtype = Dtype::float32;
  with_packed_type(a.input_dtype, [&](auto element) {
    launch(copy_forward_parameters<decltype(element)>,
           {divide_up(a.cols, kCopyThreads), kCopyThreads, 0, stream}, a, weights, biases);
  });
  return copied;
}

}  // namespace simple_layernorm::gpu
