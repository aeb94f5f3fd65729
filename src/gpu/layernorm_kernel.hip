// LayerNorm forward on a GPU: a block per row, any number of columns, any alignment.
// The row is read three times, the second and third time from cache: for its mean, for the centred
// sums, and to be written normalised. math/layer_norm.hpp has the formula.

#include "gpu/elements.hpp"
#include "gpu/launch_plan.hpp"
#include "gpu/layernorm_launch.hpp"
#include "gpu/reduction.hpp"
#include "math/layer_norm.hpp"

namespace simple_layernorm::gpu {
namespace {

template <class Element, class T>
__device__ RowStatistics<T> block_statistics(const Element* row, std::int64_t cols, T eps, T scale,
                                             BlockReduction<T>& block, CentredSums<T>& sums) {
  T total[1] = {T(0)};
  for (std::int64_t col = threadIdx.x; col < cols; col += blockDim.x) {
    total[0] += load<T>(row + col) * scale;
  }
  block.template reduce<Sum>(total);
  const T shift = total[0] / static_cast<T>(cols);

  T centred[2] = {T(0), T(0)};
  for (std::int64_t col = threadIdx.x; col < cols; col += blockDim.x) {
    const T d = load<T>(row + col) * scale - shift;
    centred[0] += d;
    centred[1] = fma(d, d, centred[1]);
  }
  block.template reduce<Sum>(centred);
  sums = {centred[0], centred[1]};
  return row_statistics(scale, shift, sums, static_cast<T>(cols), eps);
}

template <class Element, class T>
__device__ T block_scale(const Element* row, std::int64_t cols, T eps, BlockReduction<T>& block) {
  T largest[1] = {T(0)};
  for (std::int64_t col = threadIdx.x; col < cols; col += blockDim.x) {
    largest[0] = Largest::combine(largest[0], std::fabs(load<T>(row + col)));
  }
  block.template reduce<Largest>(largest);
  return scale_of(largest[0], eps);
}

template <class Element>
__global__ void __launch_bounds__(kMostThreads) layer_norm_forward_rows(LayerNormForward a) {
  using T = Compute<Element>;
  __shared__ T slots[kReductionSlots];
  BlockReduction<T> block(slots);
  const Parameter<Element> weight(a.weight, a.weight_dtype, T(1));
  const Parameter<Element> bias(a.bias, a.bias_dtype, T(0));
  const T eps = static_cast<T>(a.eps);

  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const Element* input = static_cast<const Element*>(a.input) + row * a.row_stride;
    Element* output = static_cast<Element*>(a.output) + row * a.cols;

    CentredSums<T> sums;
    RowStatistics<T> s = block_statistics(input, a.cols, eps, T(1), block, sums);
    if (needs_scaling(sums, eps)) {
      const T scale = block_scale(input, a.cols, eps, block);
      s = block_statistics(input, a.cols, eps, scale, block, sums);
    }
    for (std::int64_t col = threadIdx.x; col < a.cols; col += blockDim.x) {
      const T x_hat = normalise(load<T>(input + col), s.scale, s.shift, s.correction, s.rstd);
      store(output + col, static_cast<T>(fma(x_hat, weight[col], bias[col])));
    }
    if (threadIdx.x == 0 && a.mean != nullptr) {
      static_cast<T*>(a.mean)[row] = s.unscaled_mean();
      static_cast<T*>(a.rstd)[row] = s.unscaled_rstd();
    }
  }
}

}  // namespace

void launch_forward(const LayerNormForward& arguments, const DeviceProperties& device,
                    void* stream) {
  const LaunchPlan plan = plan_forward(arguments.rows, arguments.cols, device);
  with_element_type(arguments.input_dtype, [&](auto element) {
    launch(layer_norm_forward_rows<decltype(element)>, plan.blocks, plan.threads, 0, stream,
           arguments);
  });
}

}  // namespace simple_layernorm::gpu
