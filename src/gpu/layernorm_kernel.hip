// LayerNorm forward on a GPU: a block per row, any number of columns, any alignment.
// The row is read three times, the second and third time from cache: for its mean, for the centred
// sums, and to be written normalised. math/layer_norm.hpp has the formula.

#include "gpu/elements.hpp"
#include "gpu/launch.hpp"
#include "gpu/launch_plan.hpp"
#include "gpu/layernorm_launch.hpp"
#include "gpu/reduction.hpp"
#include "math/layer_norm.hpp"

namespace simple_layernorm::gpu {
namespace {

template <class Element, class T>
__device__ Moments<T> block_moments(const Element* row, std::int64_t cols, T scale,
                                    BlockReduction<T, kMostThreads>& block) {
  const T inverse_n = T(1) / static_cast<T>(cols);
  T total[1] = {T(0)};
  for (std::int64_t col = threadIdx.x; col < cols; col += blockDim.x) {
    total[0] += load<T>(row + col) * scale;
  }
  block.sum(total);
  const T shift = total[0] * inverse_n;

  T centred[2] = {T(0), T(0)};
  for (std::int64_t col = threadIdx.x; col < cols; col += blockDim.x) {
    const T d = load<T>(row + col) * scale - shift;
    centred[0] += d;
    centred[1] = fma(d, d, centred[1]);
  }
  block.sum(centred);
  return moments_of(shift, centred[0], centred[1], inverse_n);
}

template <class Element>
__global__ void __launch_bounds__(kMostThreads) layer_norm_forward_rows(LayerNormForward a) {
  using T = Compute<Element>;
  await_earlier_work();
  using Block = BlockReduction<T, kMostThreads>;
  __shared__ T slots[Block::kSlots];
  Block block(slots);
  const MixedArray<Element> weight(a.weight, a.weight_dtype, T(1));
  const MixedArray<Element> bias(a.bias, a.bias_dtype, T(0));
  const T eps = static_cast<T>(a.eps);
  const T n = static_cast<T>(a.cols);

  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const Element* input = static_cast<const Element*>(a.input) + row * a.row_stride;
    Moments<T> moments = block_moments(input, a.cols, T(1), block);
    const T scale = rescue_scale(moments.m2, eps);
    if (scale != T(1)) moments = block_moments(input, a.cols, scale, block);
    const RowStatistics<T> s = row_statistics(moments, n, T(1) / n, eps, scale);
    const T rstd_tail = sizeof(Element) > 2 || a.wide_output ? s.rstd_tail : T(0);

    for (std::int64_t col = threadIdx.x; col < a.cols; col += blockDim.x) {
      const T x = load<T>(input + col) * scale;
      const T x_hat = normalise(x, s.shift, s.rstd, fine_offset(x, s.shift, rstd_tail, s.offset));
      const T y = fma(x_hat, weight[col], bias[col]);
      if (a.wide_output) {
        static_cast<T*>(a.output)[row * a.cols + col] = y;
      } else {
        store(static_cast<Element*>(a.output) + row * a.cols + col, y);
      }
    }
    if (threadIdx.x > 0) continue;
    if (a.mean != nullptr) static_cast<T*>(a.mean)[row] = s.unscaled_mean();
    if (a.rstd != nullptr) static_cast<T*>(a.rstd)[row] = s.unscaled_rstd();
  }
}

}  // namespace

void launch_forward_general(const LayerNormForward& a, const DeviceProperties& device,
                            void* stream) {
  with_element_type(a.input_dtype, [&](auto element) {
    launch(layer_norm_forward_rows<decltype(element)>,
           {std::min(a.rows, kMostBlocks), threads_per_row(a.cols, device.wave), 0, stream}, a);
  });
}

}  // namespace simple_layernorm::gpu
