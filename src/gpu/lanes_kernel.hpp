// LayerNorm forward for narrow rows: a group of lanes per row, several rows to a wave, the row in
// registers, no shared memory and no barrier. math/layer_norm.hpp has the formula.

#pragma once

#include <algorithm>

#include "gpu/launch.hpp"
#include "gpu/launch_plan.hpp"
#include "gpu/layernorm_launch.hpp"
#include "gpu/segment.hpp"
#include "gpu/segment_tree.hpp"

namespace simple_layernorm::gpu {

/// values[threadIdx.x % kRows], by selection: an index would put the values into memory.
template <int kRows>
__device__ __forceinline__ float own_of(const float (&values)[kRows]) {
  float own = values[0];
#pragma unroll
  for (int u = 1; u < kRows; ++u) {
    const float value = values[u];
    own = threadIdx.x % kRows == u ? value : own;
  }
  return own;
}

/// The steps of sum_of_own from kDistance on.
template <int kLanes, int kDistance, int kRows>
__device__ __forceinline__ float sum_of_own_from(const float (&values)[kRows]) {
  if constexpr (kDistance == kLanes) {
    return values[0];
  } else if constexpr (kRows == 1) {
    const float sum[1] = {values[0] + swap_lanes<kDistance>(values[0])};
    return sum_of_own_from<kLanes, 2 * kDistance>(sum);
  } else {
    const bool is_upper = (threadIdx.x & kDistance) != 0;
    float sums[kRows / 2];
#pragma unroll
    for (int u = 0; u < kRows / 2; ++u) {
      const float even = values[2 * u];
      const float odd = values[2 * u + 1];
      sums[u] = (is_upper ? odd : even) + swap_lanes<kDistance>(is_upper ? even : odd);
    }
    return sum_of_own_from<kLanes, 2 * kDistance>(sums);
  }
}

/// The sums of kRows values, a power of two, over each group of kLanes neighbouring lanes: lane l
/// of the group gets that of values[l % kRows], with the bits of group_sum. In each step a lane
/// gives half of its sums to a neighbour: little more work than a single sum.
template <int kLanes, int kRows>
__device__ __forceinline__ float sum_of_own(const float (&values)[kRows]) {
  if constexpr (kRows == 1) {
    return group_sum<kLanes>(values[0]);
  } else {
    return sum_of_own_from<kLanes, 1>(values);
  }
}

/// The value of the lane whose own row is u, in all lanes of its group.
template <int kLanes, int kRows>
__device__ __forceinline__ float of_owner(float value, int u) {
  return kRows == 1 ? value : shuffle_from<kLanes>(value, u);
}

/// The moments of a lane's own row: of segments[threadIdx.x % kRows]. They are centred on the mean,
/// or on the first value, which spares a sum over the lanes.
template <int kLanes, class Segment, int kRows>
__device__ __forceinline__ Moments<float> own_moments(const Segment (&segments)[kRows],
                                                      float inverse_n, bool is_on_first) {
  float shift[kRows], s1[kRows], s2[kRows];
  if (is_on_first) {
#pragma unroll
    for (int u = 0; u < kRows; ++u) shift[u] = shuffle_from<kLanes>(segments[u].first_value(), 0);
  } else {
#pragma unroll
    for (int u = 0; u < kRows; ++u) s1[u] = segments[u].sample_sum({});
    const float own_shift = sum_of_own<kLanes>(s1) * segments[0].inverse_sample(inverse_n);
#pragma unroll
    for (int u = 0; u < kRows; ++u) shift[u] = of_owner<kLanes, kRows>(own_shift, u);
  }
#pragma unroll
  for (int u = 0; u < kRows; ++u) segments[u].centred_lane_sums(shift[u], {}, s1[u], s2[u]);
  return moments_of(own_of(shift), sum_of_own<kLanes>(s1), sum_of_own<kLanes>(s2), inverse_n);
}

/// Packs of weight, and of bias, that are loaded before the sums: a call of few rows does not wait
/// for them at the end. H200, 2026-11-30, a graph's launch of 16 x 64 float32: 1.81 us, without
/// 1.99. None where each takes two: bfloat16 rows with float32 parameters, forward over copy, 64
/// and 128 columns 0.986 and 0.979, with them 0.892 and 0.881.
constexpr int kEarlyPacks = 2;

/// Rows that a group reads at a time. float16's conversions leave few registers for two unaligned
/// ones: 509, 773, 1001 columns, one 0.727, 0.791, 0.761 of a copy, two at best 0.682, 0.820,
/// 0.753 (H200, torch 2.11, 2026-11-30).
template <class Element, class Access>
constexpr int group_rows(const LanesShape& shape) {
  constexpr bool kIsFloat16 = std::is_same_v<Element, Float16>;
  if (kIsFloat16 && !Access::kIsAligned && shape.lanes >= 32) return 1;
  return lanes_rows(shape, sizeof(Element), Access::kIsAligned || kIsFloat16);
}

/// Blocks that registers must leave room for on a multiprocessor, 0 to leave it to the compiler;
/// `packs` of a lane in all its rows. Unaligned rows hide the exchange between lanes by many waves.
/// H200, torch 2.11, 2026-11-30, forward over copy: bfloat16 1501 columns (6 packs) 4, 5, 6, 7
/// blocks 0.793, 0.873, 0.918, 0.926; 2001 columns (8 packs) 4, 5, 6 blocks 0.864, 0.913, 0.918
/// (spills); 773 columns (two rows of 3 packs) 4, 5, 6, 7 blocks 0.787, 0.867, 0.912, 0.925
/// (spills); float16 1501 columns 3, 4, 5 blocks 0.682, 0.802, 0.768 (spills), 2001 columns 3, 4
/// blocks 0.755, 0.832 (spills). bfloat16 with float32 parameters 1281 columns (5 packs) 5, 6, 7, 8
/// blocks 0.814, 0.855, 0.893, 0.808 (spills), 1501 columns 4, 5, 6 blocks 0.746, 0.814, 0.851.
template <class Element, class Access>
constexpr int lanes_blocks(int packs) {
  if (Access::kIsAligned || packs < 5) return 0;
  if (std::is_same_v<Element, Float16>) return 4;
  return std::min(40 / packs, Access::Parameters::kCount == 1 ? 8 : 7);
}

/// Threads of a block whose lanes read kPacks packs each.
template <class Access, int kPacks>
constexpr int kLanesThreads = lanes_threads(kPacks, Access::kIsAligned);

/// Rows r, r + kGroups, … of a group, kRows of them, are read before the first is used. From sums
/// to statistics, each lane works on one of them only, its own.
/// kCentresOnFirst: on the first value, unless all digits of a float are wanted. Its distance from
/// the mean is at most sqrt(n) times the spread, so that this costs variance a relative error of
/// 2^-24 n, 2^-15 for the widest such rows.
template <class Element, class Access, bool kCentresOnFirst, int kLanes, int kPacks, int kRows>
__global__ void __launch_bounds__((kLanesThreads<Access, kPacks * kRows>),
                                  (kResident<kLanesThreads<Access, kPacks * kRows>,
                                             lanes_blocks<Element, Access>(kRows* kPacks), false>))
    layer_norm_forward_lanes(LayerNormForward a, std::int64_t first_row, float inverse_n) {
  if constexpr (kLanes > kWave || (kLanes < kWave && kPacks > 4)) return;  // for other waves
  await_earlier_work();
  constexpr int kGroups = kLanesThreads<Access, kPacks * kRows> / kLanes;
  const RowShape<Element> shape(a.cols);
  const float eps = static_cast<float>(a.eps);
  const std::int64_t row0 =
      first_row + std::int64_t{blockIdx.x} * (kGroups * kRows) + threadIdx.x / kLanes;
  // Lanes must meet in the sums: groups beyond the last row work on it too, but write nothing.
  const auto row_of = [&](int u) { return min(row0 + u * kGroups, a.rows - 1); };
  const auto input_of = [&](int u) {
    return static_cast<const Element*>(a.input) + row_of(u) * a.row_stride;
  };

  const Access access(a, {});
  const bool is_on_first = kCentresOnFirst && !access.is_fine();
  using RowSegment = Segment<Element, Access, kLanes, kPacks>;
  RowSegment segments[kRows];
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    segments[u].place(shape, 0, true);
    segments[u].load(input_of(u));
  }
  constexpr bool kIsEarly =
      Access::kIsAligned && Access::Parameters::kCount == 1 && kPacks <= kEarlyPacks;
  typename RowSegment::PackParameters early[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if constexpr (kIsEarly) early[k] = segments[0].parameters(access, k);
  }
#pragma unroll
  for (int u = 0; u < kRows; ++u) segments[u].arrange(input_of(u), 1.0f);
  Moments<float> moments = own_moments<kLanes>(segments, inverse_n, is_on_first);
  const float scale = rescue_scale_of<Element>(moments.m2, eps);
  if (any_lane(scale != 1.0f)) {
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      segments[u].load(input_of(u));
      segments[u].arrange(input_of(u), of_owner<kLanes, kRows>(scale, u));
    }
    moments = own_moments<kLanes>(segments, inverse_n, is_on_first);
  }

  const RowStatistics<float> own =
      row_statistics(moments, static_cast<float>(a.cols), inverse_n, eps, scale);
  const std::int64_t own_row = row0 + threadIdx.x % kRows * kGroups;
  if (threadIdx.x % kLanes < kRows && own_row < a.rows) store_statistics(a, own_row, own);
  RowStatistics<float> statistics[kRows];
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    const auto of_row = [u](float value) { return of_owner<kLanes, kRows>(value, u); };
    statistics[u] = {of_row(own.scale), of_row(own.shift),     of_row(own.tail),
                     of_row(own.rstd),  of_row(own.rstd_tail), of_row(own.offset)};
  }

#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    float w[kPackSize<Element>], b[kPackSize<Element>];
    if constexpr (kIsEarly) {
      early[k].weights.expand_to(w, {});
      early[k].biases.expand_to(b, {});
    } else {
      segments[0].load_parameters(access, k, w, b);
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const std::int64_t row = row0 + u * kGroups;
      if (row >= a.rows) break;
      segments[u].write_pack(access, k, row * a.cols, statistics[u], w, b, {});
      if (k == 0) segments[u].write_tail(access, row * a.cols, statistics[u]);
    }
  }
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    const std::int64_t row = row0 + u * kGroups;
    segments[u].write_packs(access, row * a.cols, row < a.rows);
  }
}

template <class Element, class Access, int kIndex>
void launch_lanes(const LayerNormForward& a, void* stream) {
  constexpr LanesShape kShape = kLanesShapes[kIndex];
  constexpr int kRows = group_rows<Element, Access>(kShape);
  constexpr bool kCentresOnFirst = sizeof(Element) == 2 && kShape.rows > 1;
  constexpr int kThreads = kLanesThreads<Access, kShape.packs * kRows>;
  constexpr std::int64_t kRowsPerBlock = kThreads / kShape.lanes * kRows;
  constexpr std::int64_t kRowsPerLaunch = kMostBlocks * kRowsPerBlock;
  for (std::int64_t first = 0; first < a.rows; first += kRowsPerLaunch) {
    const std::int64_t rows = std::min(a.rows - first, kRowsPerLaunch);
    launch(layer_norm_forward_lanes<Element, Access, kCentresOnFirst, kShape.lanes, kShape.packs,
                                    kRows>,
           {divide_up(rows, kRowsPerBlock), kThreads, 0, stream}, a, first,
           1.0f / static_cast<float>(a.cols));
  }
}

template <class Element>
void launch_forward_lanes(const LayerNormForward& a, const ForwardPlan& plan, void* stream) {
  with_index<kLanesShapeCount>(plan.shape, [&](auto index) {
    with_access<Element>(a, [&](auto* access) {
      using Access = std::remove_pointer_t<decltype(access)>;
      constexpr int kIndex = decltype(index)::value;
      constexpr int kSize = sizeof(Element);
      constexpr bool kIsAligned = Access::kIsAligned;
      if constexpr (takes_lanes_shape(kIndex, kSmallestWave, kSize, kIsAligned) ||
                    takes_lanes_shape(kIndex, kLargestWave, kSize, kIsAligned)) {
        launch_lanes<Element, Access, kIndex>(a, stream);
      }
    });
  });
}

}  // namespace simple_layernorm::gpu
