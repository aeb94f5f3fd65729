// Adds up the partial sums of the parameter gradients, in an order that their number alone fixes.

#include "gpu/partial_sums.hpp"

#include "gpu/elements.hpp"

namespace simple_layernorm::gpu {
namespace {

constexpr int kSumThreads = 256;

template <class T>
struct Gradient {
  const T* partials;  ///< [groups, stride]
  void* result;       ///< [cols] of dtype
  Dtype dtype;
};

template <class T>
__device__ void store_as(Dtype dtype, void* p, std::int64_t i, T value) {
  if constexpr (sizeof(T) == sizeof(double)) {
    store(static_cast<double*>(p) + i, value);
  } else if (dtype == Dtype::float16) {
    store(static_cast<Float16*>(p) + i, value);
  } else if (dtype == Dtype::bfloat16) {
    store(static_cast<BFloat16*>(p) + i, value);
  } else {
    store(static_cast<float*>(p) + i, value);
  }
}

/// `lanes` threads, a power of two, share a column: the grid would be too small for few columns,
/// and the loops too long for many groups. Blocks take turns with the `count` gradients.
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    sum_partials(Gradient<T> first, Gradient<T> second, int count, std::int64_t first_col,
                 std::int64_t cols, std::int64_t groups, std::int64_t stride, int lanes) {
  __shared__ T slots[kSumThreads];
  const Gradient<T>& gradient = blockIdx.x % count == 0 ? first : second;
  const int width = kSumThreads / lanes;
  const int lane = threadIdx.x / width;
  const std::int64_t col =
      first_col + std::int64_t{blockIdx.x / count} * width + threadIdx.x % width;
  T sum = T(0);
  if (col < cols) {
#pragma unroll 4
    for (std::int64_t i = lane; i < groups; i += lanes) {
      sum += gradient.partials[i * stride + col];
    }
  }
  slots[threadIdx.x] = sum;
  __syncthreads();
  if (lane != 0 || col >= cols) return;
  for (int i = 1; i < lanes; ++i) sum += slots[i * width + threadIdx.x];
  store_as(gradient.dtype, gradient.result, col, sum);
}

}  // namespace

template <class T>
void launch_sum(const LayerNormBackward& a, const PartialSums<T>& partial_sums, void* stream) {
  const Gradient<T> weight = {partial_sums.weight, a.grad_weight, a.weight_dtype};
  const Gradient<T> bias = {partial_sums.bias, a.grad_bias, a.bias_dtype};
  const int count = (weight.result != nullptr) + (bias.result != nullptr);
  if (count == 0) return;
  // About four loads to a thread: they are under way together.
  int lanes = 1;
  while (lanes < 32 && lanes * 8 <= partial_sums.groups) lanes *= 2;
  const int width = kSumThreads / lanes;
  const std::int64_t most_cols = kMostBlocks / count * width;
  for (std::int64_t first = 0; first < a.cols; first += most_cols) {
    const std::int64_t blocks = divide_up(std::min(a.cols - first, most_cols), width) * count;
    launch(sum_partials<T>, blocks, kSumThreads, 0, stream,
           weight.result != nullptr ? weight : bias, bias, count, first, a.cols,
           partial_sums.groups, partial_sums.stride, lanes);
  }
}

template void launch_sum(const LayerNormBackward&, const PartialSums<float>&, void*);
template void launch_sum(const LayerNormBackward&, const PartialSums<double>&, void*);

}  // namespace simple_layernorm::gpu
