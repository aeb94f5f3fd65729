// LayerNorm backward on a GPU: a block per row, any number of columns, any alignment. The block
// adds the row's share of grad_weight and grad_bias to partial sums of its own, which lie in
// memory. math/layer_norm.hpp has the formula.

#include "gpu/elements.hpp"
#include "gpu/launch.hpp"
#include "gpu/layernorm_launch.hpp"
#include "gpu/partial_sums.hpp"
#include "gpu/reduction.hpp"
#include "math/layer_norm.hpp"

namespace simple_layernorm::gpu {
namespace {

/// A thread owns the same columns in every row, so that it alone touches their partial sums.
template <class T>
__device__ void accumulate(T* partial, T value, bool first) {
  *partial = first ? value : *partial + value;
}

template <class Element>
__global__ void __launch_bounds__(kMostThreads)
    layer_norm_backward_rows(LayerNormBackward a, PartialSums<Compute<Element>> partial_sums) {
  await_earlier_work();
  using T = Compute<Element>;
  using Block = BlockReduction<T, kMostThreads>;
  __shared__ T slots[Block::kSlots];
  Block block(slots);
  const MixedArray<Element> weight(a.weight, a.weight_dtype, T(1));
  const MixedArray<Element> grad_output(
      a.grad_output, a.wide_output ? kStatisticDtype<Element> : a.input_dtype, T(0));
  T* const weight_partial = partial_sums.weight_row(blockIdx.x);
  T* const bias_partial = partial_sums.bias_row(blockIdx.x);

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
      const T x_hat = normalise(load<T>(x + col), mean, rstd, -average.x0);
      if (a.grad_input != nullptr) {
        store(static_cast<Element*>(a.grad_input) + row * a.cols + col,
              input_gradient(grad * weight[col], x_hat, average.h, average.h_x_hat, rstd));
      }
      if (weight_partial != nullptr) accumulate(weight_partial + col, grad * x_hat, first);
      if (bias_partial != nullptr) accumulate(bias_partial + col, grad, first);
    }
  }
}

}  // namespace

std::size_t general_backward_workspace(const LayerNormBackward& a, const BackwardPlan& plan) {
  return a.input_dtype == Dtype::float64 ? PartialSums<double>::bytes(a, plan.groups)
                                         : PartialSums<float>::bytes(a, plan.groups);
}

void launch_backward_general(const LayerNormBackward& a, const BackwardPlan& plan, void* workspace,
                             void* stream) {
  with_element_type(a.input_dtype, [&](auto element) {
    using Element = decltype(element);
    const PartialSums<Compute<Element>> partial_sums(a, plan.groups, workspace);
    if (plan.groups > 0) {
      launch(layer_norm_backward_rows<Element>, {plan.groups, plan.threads, 0, stream}, a,
             partial_sums);
    }
    launch_sum(a, partial_sums, stream);
  });
}

}  // namespace simple_layernorm::gpu
