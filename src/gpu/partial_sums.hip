// Adds up the partial sums of the parameter gradients, in an order that their number alone fixes.

#include "gpu/partial_sums.hpp"

#include "gpu/elements.hpp"
#include "gpu/launch.hpp"
#include "gpu/packs.hpp"

namespace simple_layernorm::gpu {
namespace {

constexpr int kSumThreads = 256;
constexpr int kMostSumLanes = 64;  ///< threads to a pack of columns: what leaves a block four packs

template <class T>
struct Gradient {
  const T* partials;  ///< [groups, stride]
  void* result;       ///< [cols] of dtype
  Dtype dtype;
};

/// Writes the first `count` of these values: in one piece, if that is all and they are aligned.
template <class Element, class T, int kSize>
__device__ void store_values(Element* p, const T (&values)[kSize], std::int64_t count) {
  Element elements[kSize];
#pragma unroll
  for (int i = 0; i < kSize; ++i) store(&elements[i], values[i]);
  using Words = std::conditional_t<sizeof elements == sizeof(uint2), uint2, uint4>;
  if (count >= kSize && reinterpret_cast<std::uintptr_t>(p) % sizeof(Words) == 0) {
    Words words;
    __builtin_memcpy(&words, elements, sizeof words);
    *reinterpret_cast<Words*>(p) = words;
  } else {
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (i < count) p[i] = elements[i];
    }
  }
}

/// Neighbouring columns of a row of partial sums, as one thread reads them.
template <class T>
struct alignas(sizeof(Pack)) SumPack {
  static constexpr int kSize = sizeof(Pack) / sizeof(T);
  T values[kSize];

  __device__ void add(const T* p, std::int64_t left) {
    if (left >= kSize) {
      const SumPack other = *reinterpret_cast<const SumPack*>(p);
#pragma unroll
      for (int i = 0; i < kSize; ++i) values[i] += other.values[i];
    } else {
#pragma unroll
      for (int i = 0; i < kSize; ++i) values[i] += i < left ? p[i] : T(0);
    }
  }
};

/// `lanes` threads, a power of two, share a pack of columns: the grid would be too small for few
/// columns, and the loops too long for many groups. Blocks take turns with the `count` gradients.
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    sum_partials(Gradient<T> first, Gradient<T> second, int count, std::int64_t first_col,
                 std::int64_t cols, std::int64_t groups, std::int64_t stride, int lanes) {
  await_earlier_work();
  using Columns = SumPack<T>;
  __shared__ Columns slots[kSumThreads];
  const Gradient<T> gradient = blockIdx.x % count == 0 ? first : second;
  const int width = kSumThreads / lanes;
  const int lane = threadIdx.x / width;
  const std::int64_t pack = std::int64_t{blockIdx.x / count} * width + threadIdx.x % width;
  const std::int64_t col = first_col + pack * Columns::kSize;
  Columns sums = {};
#pragma unroll 4
  for (std::int64_t i = lane; i < groups; i += lanes) {
    sums.add(gradient.partials + i * stride + col, cols - col);
  }
  slots[threadIdx.x] = sums;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) {
      sums.add(slots[threadIdx.x + half * width].values, Columns::kSize);
      slots[threadIdx.x] = sums;
    }
  }
  if (lane != 0) return;
  const auto store_as = [&](auto element) {
    store_values(static_cast<decltype(element)*>(gradient.result) + col, sums.values, cols - col);
  };
  if constexpr (sizeof(T) == sizeof(double)) {
    store_as(double{});
  } else if (gradient.dtype == Dtype::float16) {
    store_as(Float16{});
  } else if (gradient.dtype == Dtype::bfloat16) {
    store_as(BFloat16{});
  } else {
    store_as(float{});
  }
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
  while (lanes < kMostSumLanes && lanes * 8 <= partial_sums.groups) lanes *= 2;
  const int width = kSumThreads / lanes * SumPack<T>::kSize;
  const std::int64_t most_cols = kMostBlocks / count * width;
  for (std::int64_t first = 0; first < a.cols; first += most_cols) {
    const std::int64_t blocks = divide_up(std::min(a.cols - first, most_cols), width) * count;
    launch(sum_partials<T>, {blocks, kSumThreads, 0, stream},
           weight.result != nullptr ? weight : bias, bias, count, first, a.cols,
           partial_sums.groups, partial_sums.stride, lanes);
  }
}

template void launch_sum(const LayerNormBackward&, const PartialSums<float>&, void*);
template void launch_sum(const LayerNormBackward&, const PartialSums<double>&, void*);

}  // namespace simple_layernorm::gpu
