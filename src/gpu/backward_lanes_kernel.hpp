// LayerNorm backward for narrow rows: a team of lanes per row, several teams to a wave. Each row is
// read once, the next rows while this one is worked on. math/layer_norm.hpp has the formula.
#pragma once

#include "gpu/backward_plan.hpp"
#include "gpu/gradient_segment.hpp"
#include "gpu/launch.hpp"
#include "gpu/partial_sums.hpp"

namespace simple_layernorm::gpu {

/// Adds up `values`, kCount columns that each lane of a team holds, over the teams of the block, in
/// their order. Columns begin at first_col and end before end_col. `slots` is shared memory for
/// kBackwardLanesThreads * kCount floats. All threads must call it.
template <int kLanes, int kCount>
__device__ void store_team_sums(const float (&values)[kCount], float* slots, std::int64_t first_col,
                                std::int64_t end_col, float* result) {
  if (result == nullptr) return;
  __syncthreads();  // the slots may still be read for other columns
#pragma unroll
  for (int i = 0; i < kCount; ++i) slots[threadIdx.x * kCount + i] = values[i];
  __syncthreads();
  constexpr int kCols = kLanes * kCount;
  for (int i = threadIdx.x; i < kCols && first_col + i < end_col; i += kBackwardLanesThreads) {
    float sum = 0.0f;
#pragma unroll
    for (int team = 0; team < kBackwardLanesThreads / kLanes; ++team) {
      sum += slots[team * kCols + i];
    }
    result[first_col + i] = sum;
  }
}

/// Teams of 8 lanes exchange so much of unaligned rows that shared memory, which takes the same
/// way, is slower: bfloat16, 61 columns 0.394, in registers 0.467 (H200, torch 2.11, 2026-11-30).
template <class Access, int kIndex>
constexpr bool kLanesUseSharedMemory =
    kKeepsInSharedMemory && kBackwardLanesShapes[kIndex].uses_shared_memory &&
    (Access::kIsAligned || kBackwardLanesShapes[kIndex].lanes > 8);

template <class Element, class Access, int kIndex>
using LanesSegment =
    GradientSegment<Element, Access, kBackwardLanesShapes[kIndex].lanes,
                    kBackwardLanesShapes[kIndex].packs,
                    (kLanesUseSharedMemory<Access, kIndex> ? kBackwardLanesThreads : 0)>;

template <class Element, class Access, int kIndex>
__global__ void __launch_bounds__(
    kBackwardLanesThreads,
    (kResident<kBackwardLanesThreads, kBackwardLanesShapes[kIndex].blocks,
               Access::kIsWide || (Access::kHasTail && kBackwardLanesShapes[kIndex].lanes == 8)>))
    layer_norm_backward_lanes(LayerNormBackward a, PartialSums<float> partial_sums) {
  constexpr int kLanes = kBackwardLanesShapes[kIndex].lanes;
  constexpr int kPacks = kBackwardLanesShapes[kIndex].packs;
  constexpr int kRows = Access::kIsWide ? 1 : kBackwardLanesShapes[kIndex].rows;
  if constexpr (kLanes > kWave) return;  // a shape for larger waves
  if constexpr (kBackwardLanesShapes[kIndex].needs > kRoom) return;
  await_earlier_work();
  constexpr int kTeams = kBackwardLanesThreads / kLanes;
  constexpr int kSize = kPackSize<Element>;
  using Segment = LanesSegment<Element, Access, kIndex>;
  __shared__ float slots[kBackwardLanesThreads * kSize];
  SIMPLE_LAYERNORM_DYNAMIC_SHARED(Pack, memory);
  Segment segment(a, 0, memory);
  const float inverse_n = 1.0f / static_cast<float>(a.cols);
  const int team = threadIdx.x / kLanes;
  // Lanes must meet in the sums: teams beyond the last row work on it too, but keep nothing.
  const auto row_of = [&](std::int64_t first, int u) { return first + team + u * kTeams; };
  const auto load = [&](std::int64_t first, auto& rows) SIMPLE_LAYERNORM_INLINED {
#pragma unroll
    for (int u = 0; u < kRows; ++u) segment.load(min(row_of(first, u), a.rows - 1), rows[u]);
  };

  typename Segment::Sums sums(memory);
  const std::int64_t step = std::int64_t{gridDim.x} * (kTeams * kRows);
  typename Segment::Row rows[kRows], next[kRows];
  std::int64_t first = std::int64_t{blockIdx.x} * (kTeams * kRows);
  load(first, rows);
  segment.load_weights();
#pragma unroll 1
  for (; first < a.rows; first += step) {
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      segment.arrange(min(row_of(first, u), a.rows - 1), rows[u]);
    }
    load(first + step, next);
    const Hide first_pass(first, 63);
    const Hide second_pass(first, 62);
    GradientAverages<float> averages[kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      float s[3];
      segment.sums_of(rows[u], s, first_pass);
#pragma unroll
      for (float& sum : s) sum = group_sum<kLanes>(sum);
      averages[u] = gradient_averages(s[0], s[1], s[2], inverse_n);
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const std::int64_t row = row_of(first, u);
      if (row < a.rows) segment.finish(row, rows[u], averages[u], sums, second_pass);
      segment.write_packs(row, rows[u], row < a.rows);
      rows[u] = next[u];
    }
  }

  float* const weight = partial_sums.weight_row(blockIdx.x);
  float* const bias = partial_sums.bias_row(blockIdx.x);
  const RowShape<Element> shape(a.cols);
  const std::int64_t first_tail_col = shape.first_tail_col();
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    constexpr int kCols = kLanes * kSize;
    float weight_sums[kSize], bias_sums[kSize];
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      weight_sums[i] = float_of(sums.weight_of(k, i / 4).words[i % 4]);
      bias_sums[i] = float_of(sums.bias_of(k, i / 4).words[i % 4]);
    }
    store_team_sums<kLanes>(weight_sums, slots, k * kCols, first_tail_col, weight);
    store_team_sums<kLanes>(bias_sums, slots, k * kCols, first_tail_col, bias);
  }
  if constexpr (Access::kHasTail) {
    const float weight_sum[1] = {sums.weight_tail}, bias_sum[1] = {sums.bias_tail};
    store_team_sums<kLanes>(weight_sum, slots, first_tail_col, a.cols, weight);
    store_team_sums<kLanes>(bias_sum, slots, first_tail_col, a.cols, bias);
  }
}

template <class Element>
void launch_backward_lanes(const LayerNormBackward& a, const BackwardPlan& plan, void* workspace,
                           void* stream) {
  const PartialSums<float> partial_sums(a, plan.groups, workspace);
  with_index<kBackwardLanesShapeCount>(plan.shape, [&](auto index) {
    constexpr int kIndex = decltype(index)::value;
    with_gradient_access<Element>(a, [&](auto* access) {
      using Access = std::remove_pointer_t<decltype(access)>;
      constexpr BackwardLanesShape kShape = kBackwardLanesShapes[kIndex];
      if constexpr (kShape.lanes <= kLargestWave &&
                    serves(kShape, kMostRoom, Access::kElements, !Access::kIsAligned)) {
        constexpr auto kKernel = layer_norm_backward_lanes<Element, Access, kIndex>;
        constexpr std::size_t shared_bytes = LanesSegment<Element, Access, kIndex>::kSharedPacks *
                                             sizeof(Pack) * kBackwardLanesThreads;
        allow_shared_bytes<kKernel>(shared_bytes);
        launch(kKernel, {plan.groups, plan.threads, shared_bytes, stream}, a, partial_sums);
      }
    });
  });
  launch_sum(a, partial_sums, stream);
}

}  // namespace simple_layernorm::gpu
