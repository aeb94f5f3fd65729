// LayerNorm backward on a GPU: a block per row for grad_input, which adds the row's share of
// grad_weight and grad_bias to partial sums of its own; a second kernel adds those up in fixed
// order. math/layer_norm.hpp has the formula.

#include "gpu/elements.hpp"
#include "gpu/launch_plan.hpp"
#include "gpu/layernorm_launch.hpp"
#include "gpu/reduction.hpp"
#include "math/layer_norm.hpp"

namespace simple_layernorm::gpu {
namespace {

/// Partial sums [blocks, cols] of the parameter gradients; null where one is not wanted.
template <class T>
struct Partials {
  T* weight;
  T* bias;
};

/// A thread owns the same columns in every row, so that it alone touches their partial sums.
template <class T>
__device__ void accumulate(T* partial, T value, bool first) {
  *partial = first ? value : *partial + value;
}

template <class Element>
__global__ void __launch_bounds__(kMostThreads)
    layer_norm_backward_rows(LayerNormBackward a, Partials<Compute<Element>> partials) {
  using T = Compute<Element>;
  __shared__ T slots[kReductionSlots];
  BlockReduction<T> block(slots);
  const MixedArray<Element> weight(a.weight, a.weight_dtype, T(1));
  const MixedArray<Element> grad_output(
      a.grad_output, a.wide_output ? kStatisticDtype<Element> : a.input_dtype, T(0));
  T* weight_partial = partials.weight ? partials.weight + blockIdx.x * a.cols : nullptr;
  T* bias_partial = partials.bias ? partials.bias + blockIdx.x * a.cols : nullptr;

  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const std::int64_t g = row * a.grad_output_row_stride;
    const Element* x = static_cast<const Element*>(a.input) + row * a.row_stride;
    const T mean = static_cast<const T*>(a.mean)[row];
    const T rstd = static_cast<const T*>(a.rstd)[row];

    T sums[3] = {T(0), T(0), T(0)};
    for (std::int64_t col = threadIdx.x; col < a.cols; col += blockDim.x) {
      const T x0 = normalise_stored(load<T>(x + col), mean, rstd);
      const T h = grad_output[g + col] * weight[col];
      sums[0] += x0;
      sums[1] += h;
      sums[2] = fma(h, x0, sums[2]);
    }
    block.sum(sums);
    const GradientAverages<T> average =
        gradient_averages(sums[0], sums[1], sums[2], T(1) / static_cast<T>(a.cols));

    const bool first = row == blockIdx.x;
    for (std::int64_t col = threadIdx.x; col < a.cols; col += blockDim.x) {
      const T grad = grad_output[g + col];
      const T x_hat = normalise_stored(load<T>(x + col), mean, rstd) - average.x0;
      if (a.grad_input != nullptr) {
        store(static_cast<Element*>(a.grad_input) + row * a.cols + col,
              input_gradient(grad * weight[col], x_hat, average.h, average.h_x_hat, rstd));
      }
      if (weight_partial != nullptr) accumulate(weight_partial + col, grad * x_hat, first);
      if (bias_partial != nullptr) accumulate(bias_partial + col, grad, first);
    }
  }
}

template <class T, class Gradient>
__global__ void __launch_bounds__(kMostThreads)
    sum_partials(const T* partials, std::int64_t count, std::int64_t cols, Gradient* gradient) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t col = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; col < cols;
       col += step) {
    T sum = T(0);
    for (std::int64_t i = 0; i < count; ++i) sum += partials[i * cols + col];
    store(gradient + col, sum);
  }
}

template <class T>
void launch_sum(const T* partials, std::int64_t count, std::int64_t cols, void* gradient,
                Dtype dtype, void* stream) {
  if (gradient == nullptr) return;
  const std::int64_t blocks = std::min(divide_up(cols, kMostThreads), kMostBlocks);
  with_parameter_type<T>(dtype, [&](auto element) {
    using Gradient = decltype(element);
    launch(sum_partials<T, Gradient>, blocks, kMostThreads, stream, partials, count, cols,
           static_cast<Gradient*>(gradient));
  });
}

}  // namespace

std::size_t backward_workspace(const LayerNormBackward& a, const DeviceProperties& device) {
  const std::int64_t partial_rows = (a.grad_weight != nullptr) + (a.grad_bias != nullptr);
  return static_cast<std::size_t>(partial_rows * plan_backward(a.rows, a.cols, device).blocks *
                                  a.cols) *
         size_of(statistic_dtype(a.input_dtype));
}

void launch_backward(const LayerNormBackward& a, const DeviceProperties& device, void* workspace,
                     void* stream) {
  const BackwardPlan plan = plan_backward(a.rows, a.cols, device);
  with_element_type(a.input_dtype, [&](auto element) {
    using Element = decltype(element);
    using T = Compute<Element>;
    T* next = static_cast<T*>(workspace);
    const auto take = [&](bool wanted) {
      T* const taken = wanted ? next : nullptr;
      if (wanted) next += plan.blocks * a.cols;
      return taken;
    };
    const Partials<T> partials{take(a.grad_weight != nullptr), take(a.grad_bias != nullptr)};
    if (plan.blocks > 0) {
      launch(layer_norm_backward_rows<Element>, plan.blocks, plan.threads, stream, a, partials);
    }
    launch_sum(partials.weight, plan.blocks, a.cols, a.grad_weight, a.weight_dtype, stream);
    launch_sum(partials.bias, plan.blocks, a.cols, a.grad_bias, a.bias_dtype, stream);
  });
}

}  // namespace simple_layernorm::gpu
