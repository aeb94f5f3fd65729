// LayerNorm forward for many wider rows: a block per row, which is read once and stays in
// registers. math/layer_norm.hpp has the formula, segment_tree.hpp the order of the sums.
#pragma once

#include <algorithm>
#include <type_traits>

#include "gpu/launch.hpp"
#include "gpu/launch_plan.hpp"
#include "gpu/layernorm_launch.hpp"
#include "gpu/segment.hpp"

namespace simple_layernorm::gpu {

// Packs whose weight and bias are loaded before the first of them is written, one and two segments
// to a wave. H200, torch 2.11, 2026-11-30, 2^28 elements, forward over copy, medians, 1 / 2 / 4:
// float32, 16384 columns 0.962 / 0.981 / 0.981, 131072 columns 0.578 / 0.813 / 0.855; bfloat16,
// 32768 columns 0.876 / 0.957 / 0.965, 8192 columns, one segment to a wave 0.976 / 0.981 / 0.964:
// there four cost registers that blocks would use.
constexpr int kShortAhead = 2;
constexpr int kWideAhead = 4;
constexpr int kWideAheadFloat16 = 3;  ///< whose conversions take registers: 32768 columns 0.971

/// Whether weights and biases should leave the L1 cache last: in float32 beside bfloat16 they are
/// four times the bytes of a row. See resident_blocks.
template <class Element, class Access, int kIndex>
constexpr bool kKeepsParameters = std::is_same_v<Element, BFloat16> && Access::kIsAligned &&
                                  Access::Parameters::kCount == 2 && kIndex == kWideShape;

/// Half as many where each takes two packs, rounded up.
template <class Element, class Access>
constexpr int ahead(int segments) {
  if (!Access::kIsAligned) return 1;
  constexpr int wide = std::is_same_v<Element, Float16> ? kWideAheadFloat16 : kWideAhead;
  constexpr int count = Access::Parameters::kCount;
  return ((segments == 1 ? kShortAhead : wide) + count - 1) / count;
}

/// The run of segments that a wave holds of a row.
template <class Element, class Access, int kIndex>
class WaveRun {
  static constexpr int kSegments = kBlockShapes[kIndex].segments;
  using WaveSegment = Segment<Element, Access, kWave, kBlockShapes[kIndex].packs>;
  static constexpr int kAhead = ahead<Element, Access>(kSegments);
  static constexpr bool kReplaces = !Access::kIsAligned || kIndex >= kWideShape;

 public:
  /// `wave` counts from the row's first column.
  __device__ __forceinline__ WaveRun(std::int64_t cols, int wave)
      : shape_(cols), first_(wave * kSegments) {
    place({});
  }

  /// Issues the loads of the run of `row`.
  __device__ __forceinline__ void load(const Element* row, Hide hide, bool keeps_cached) {
    place(hide);
#pragma unroll
    for (int i = 0; i < kSegments; ++i) segments_[i].load(row, keeps_cached);
  }

  /// Waits for them, multiplies the run with `scale`, and returns its moments.
  __device__ __forceinline__ CountedMoments moments(const Element* row, float scale,
                                                    std::int64_t row_index) {
#pragma unroll
    for (int i = 0; i < kSegments; ++i) segments_[i].arrange(row, scale);
    Hide hide(row_index, 63);
#pragma unroll
    for (int i = 0; i < kSegments; ++i) hide = segments_[i].once_loaded(hide);
    CountedMoments moments[kSegments];
#pragma unroll
    for (int i = 0; i < kSegments; ++i) {
      moments[i] = segments_[i].counted_moments(hide);
    }
#pragma unroll
    for (int width = kSegments / 2; width > 0; width /= 2) {
#pragma unroll
      for (int i = 0; i < width; ++i) moments[i] = merge(moments[2 * i], moments[2 * i + 1]);
    }
    return moments[0];
  }

  /// Writes the run's outputs and, with the row's first run, its statistics.
  __device__ __forceinline__ void write(const LayerNormForward& a, std::int64_t row,
                                        const RowStatistics<float>& s) {
    const Hide hide(row, 61);
    if constexpr (kReplaces) place(hide);  // rather than to keep it in registers
    if (first_ == 0 && threadIdx.x == 0) store_statistics(a, row, s);
    const Access access(a, hide);
#pragma unroll
    for (int i = 0; i < kSegments; ++i) {
      segments_[i].template write<kAhead, kKeepsParameters<Element, Access, kIndex>>(
          access, row * a.cols, s, hide);
    }
  }

 private:
  /// Done for every row: offsets of all packs, kept from row to row, would fill the registers.
  __device__ __forceinline__ void place(Hide hide) {
#pragma unroll
    for (int i = 0; i < kSegments; ++i) {
      segments_[i].place(shape_, first_pack(i) + static_cast<int>(hide.zero), is_first(i));
    }
  }

  __device__ int first_pack(int i) const { return (first_ + i) * WaveSegment::kAllPacks; }
  __device__ bool is_first(int i) const { return i == 0 && first_ == 0; }

  WaveSegment segments_[kSegments];
  RowShape<Element> shape_;
  int first_;
};

/// Addresses made with it are made anew for each attempt: kept from one to the next, those of packs
/// that are not aligned fill the registers. H200, torch 2.11, 2026-11-30, forward over copy, with
/// and without: bfloat16, 4097, 5001 columns 0.864 and 0.807, 0.835 and 0.808, 4096 columns with
/// offset 1 0.974 and 0.912 (bytes spilled: 0 and 36); float32, 4097 columns 0.971 and 0.972, 4096
/// columns with offset 1 0.961 and 0.946, but 5001 columns (5 packs) 0.949 and 0.959. Aligned rows
/// of one dtype: none changes by more than 0.006; with float32 parameters 8192, 16384 columns 0.983
/// and 0.973, 0.896 and 0.872.
template <class Element, int kIndex>
__device__ Hide hide_of_attempt(float scale, std::int64_t row) {
  if (sizeof(Element) == 4 && kBlockShapes[kIndex].packs == 5) return Hide(row, 60);
  Hide hide;
  hide.zero = bits_of(scale) >> 31;  // its sign: it is positive
  return hide;
}

/// Packs of a lane for which 64 registers a thread suffice. H200, torch 2.11, 2026-11-30, forward
/// over copy, with 64 and with 80 registers (bytes spilled with 64): bfloat16 with float32
/// parameters, 16384 columns 0.922 and 0.896, with the parameters kept in the L1 cache 0.934 and
/// 0.875, 4096 and 8192 columns so, in two runs, 0.990 and 0.949, 0.983 and 0.976 (32); float16,
/// 6144 columns 0.934 and 0.994 (52). Not aligned: bfloat16, 6001 columns (6 packs) 0.822 and 0.856
/// (56), with float32 parameters 5001 and 6001 columns 0.656 and 0.773 (148), 0.458 and 0.814
/// (380); float16, 6001 columns 0.912 and 0.882, 8193 columns (8 packs) 0.731 and 0.902 (88).
template <class Element, class Access>
constexpr int most_packs_of_64_registers() {
  constexpr bool kHasWideParameters = sizeof(Element) == 2 && Access::Parameters::kCount == 2;
  if (kMovesUnalignedPacks || sizeof(Element) == 4) return 6;
  if (std::is_same_v<Element, Float16>) return Access::kIsAligned && !kHasWideParameters ? 5 : 6;
  if (Access::kIsAligned) return kHasWideParameters ? 8 : 6;
  return kHasWideParameters ? 4 : 5;
}

/// Blocks of this size that registers must leave room for on a multiprocessor: NVIDIA's may then
/// use 64 or 80 a thread, and 128 for rows of several segments. H200, torch 2.11, 2026-11-30,
/// bfloat16 that is not aligned, forward over copy, 3 and 4 blocks: 4097, 8193, 16001 columns (8
/// packs) 0.816 and 0.864, 0.853 and 0.911, 0.819 and 0.882 (bytes spilled: 60 and 0). float32 rows
/// of up to 4 packs a lane need no more than 48: 4096 columns, rows kept in the L2 cache, 4 and 5
/// blocks 0.990 and 1.017; a graph's launch of 4096 x 768 6.24 and 5.85 us.
template <class Element, class Access, int kIndex>
constexpr int resident_blocks() {
  constexpr int kPacks = kBlockShapes[kIndex].packs;
  constexpr bool kExchanges = !kMovesUnalignedPacks && !Access::kIsAligned &&
                              std::is_same_v<Element, BFloat16> && Access::Parameters::kCount == 1;
  if (kBlockShapes[kIndex].segments > 1) return 2;
  if (kRunsManyThreads && sizeof(Element) == 4 && Access::kIsAligned && kPacks <= 4) return 5;
  if (kExchanges && kPacks == kWidePacks) return 4;
  return kPacks <= most_packs_of_64_registers<Element, Access>() ? 4 : 3;
}

/// Whether the kernel has the choice of keeps_cached: float16's conversions leave most shapes no
/// registers for it. H200, torch 2.11, 2026-11-30, forward over copy, in one run with and without:
/// 2048, 5120, 32768 columns 0.956 and 1.003, 0.923 (spills) and 0.966, 0.940 and 0.970; 4096, 8192
/// columns 1.010 and 0.985, 1.008 and 0.983.
template <class Element, int kIndex>
constexpr bool kMayKeepCached =
    kLoadsLasting && (!std::is_same_v<Element, Float16> || kIndex == kWideShape);

template <class Element, class Access, int kIndex>
__global__ void __launch_bounds__(kMostWaves* kWave, (resident_blocks<Element, Access, kIndex>()))
    layer_norm_forward_block(LayerNormForward a, std::int64_t first_row, float inverse_n,
                             bool keeps_cached) {
  __shared__ CountedMoments slots[kAttempts][kWave];
  await_earlier_work();
  const float eps = static_cast<float>(a.eps);
  const std::int64_t row = first_row + blockIdx.x;
  const Element* input = static_cast<const Element*>(a.input) + row * a.row_stride;
  WaveRun<Element, Access, kIndex> run(a.cols, threadIdx.x / kWave);

  Moments<float> moments;
  float scale = 1.0f;
#pragma unroll 1
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Hide hide = hide_of_attempt<Element, kIndex>(scale, row);
    const Element* const p = hidden(input, hide);
    run.load(p, hide, kMayKeepCached<Element, kIndex> && keeps_cached);
    moments = merge_waves(run.moments(p, scale, row), slots[attempt]).moments;
    if (attempt == 0) scale = rescue_scale_of<Element>(moments.m2, eps);
    if (scale == 1.0f) break;
  }
  run.write(a, row, row_statistics(moments, static_cast<float>(a.cols), inverse_n, eps, scale));
}

template <class Element, class Access, int kIndex>
constexpr bool kTakesBlockShape =
    takes_block_shape(kIndex, kSmallestWave, sizeof(Element), Access::kIsAligned) ||
    takes_block_shape(kIndex, kLargestWave, sizeof(Element), Access::kIsAligned);

template <class Element, class Access, int kIndex>
void launch_block(const LayerNormForward& a, int threads, bool keeps_cached, void* stream) {
  for (std::int64_t first = 0; first < a.rows; first += kMostBlocks) {
    const std::int64_t blocks = std::min(a.rows - first, kMostBlocks);
    launch(layer_norm_forward_block<Element, Access, kIndex>, {blocks, threads, 0, stream}, a,
           first, 1.0f / static_cast<float>(a.cols), keeps_cached);
  }
}

template <class Element>
void launch_forward_block(const LayerNormForward& a, const ForwardPlan& plan,
                          const DeviceProperties& device, void* stream) {
  with_index<kBlockShapeCount>(plan.shape, [&](auto index) {
    with_access<Element>(a, [&](auto* access) {
      using Access = std::remove_pointer_t<decltype(access)>;
      constexpr int kIndex = decltype(index)::value;
      if constexpr (kTakesBlockShape<Element, Access, kIndex>) {
        launch_block<Element, Access, kIndex>(
            a, plan.waves * device.wave, gpu::keeps_cached(a.rows, a.cols, sizeof(Element), device),
            stream);
      }
    });
  });
}

}  // namespace simple_layernorm::gpu
