// LayerNorm backward for wider rows: a block per row. Each row is read once, the next one while
// this one is worked on. math/layer_norm.hpp has the formula.
#pragma once

#include "gpu/backward_plan.hpp"
#include "gpu/gradient_segment.hpp"
#include "gpu/partial_sums.hpp"

namespace simple_layernorm::gpu {

/// The segment of a wave.
template <class Element, class Access, int kPacks, bool kUsesSharedMemory>
using BlockSegment =
    GradientSegment<Element, Access, kWave, kPacks, kKeepsInSharedMemory && kUsesSharedMemory>;

/// Writes the sums of a block, whose threads hold different columns, into partial sums.
template <class Segment, int kPacks>
__device__ void store_block_sums(const Segment& segment, typename Segment::Sums& sums,
                                 float* weight, float* bias) {
  const auto& columns = segment.columns();
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
#pragma unroll
    for (int part = 0; part < Segment::kSize / 4; ++part) {
      const std::int64_t col = columns.col_of(k) + part * 4;
      if (columns.holds(k) && weight != nullptr) {
        store_aligned(weight + col, sums.weight_of(k, part));
      }
      if (columns.holds(k) && bias != nullptr) store_aligned(bias + col, sums.bias_of(k, part));
    }
  }
  if (!columns.owns_tail()) return;
  if (weight != nullptr) weight[columns.tail_col()] = sums.weight_tail;
  if (bias != nullptr) bias[columns.tail_col()] = sums.bias_tail;
}

template <class Element, class Access, int kIndex>
__global__ void __launch_bounds__(kBackwardBlockShapes[kIndex].threads,
                                  (kResident<kBackwardBlockShapes[kIndex].threads,
                                             kBackwardBlockShapes[kIndex].blocks, Access::kIsWide>))
    layer_norm_backward_block(LayerNormBackward a, PartialSums<float> partial_sums) {
  if constexpr (kBackwardBlockShapes[kIndex].needs > kRoom) return;
  constexpr int kPacks = kBackwardBlockShapes[kIndex].packs;
  constexpr int kThreads = kBackwardBlockShapes[kIndex].threads;
  constexpr bool kUsesSharedMemory = kBackwardBlockShapes[kIndex].uses_shared_memory;
  using Segment = BlockSegment<Element, Access, kPacks, kUsesSharedMemory>;
  using Block = BlockReduction<float, kThreads>;
  __shared__ float slots[Block::kSlots];
  SIMPLE_LAYERNORM_DYNAMIC_SHARED(Pack, memory);
  Block block(slots);
  const Segment segment(a, threadIdx.x / kWave * (kWave * kPacks), memory);
  const float inverse_n = 1.0f / static_cast<float>(a.cols);
  typename Segment::Sums sums(memory);

  const std::int64_t step = gridDim.x;
  typename Segment::Row current, next;
  std::int64_t row = blockIdx.x;
  segment.load(row, current);
#pragma unroll 1
  for (; row < a.rows; row += step) {
    segment.arrange(row, current);
    segment.load(min(row + step, a.rows - 1), next);
    float s[3];
    segment.sums_of(current, s, Hide(row, 63));
    block.sum(s);
    const auto averages = gradient_averages(s[0], s[1], s[2], inverse_n);
    segment.finish(row, current, averages, sums, Hide(row, 62));
    segment.write_packs(row, current, true);
    current = next;
  }
  store_block_sums<Segment, kPacks>(segment, sums, partial_sums.weight_row(blockIdx.x),
                                    partial_sums.bias_row(blockIdx.x));
}

template <class Element>
void launch_backward_block(const LayerNormBackward& a, const BackwardPlan& plan, void* workspace,
                           void* stream) {
  const PartialSums<float> partial_sums(a, plan.groups, workspace);
  with_index<kBackwardBlockShapeCount>(plan.shape, [&](auto index) {
    with_gradient_access<Element>(a, [&](auto* access) {
      using Access = std::remove_pointer_t<decltype(access)>;
      constexpr int kIndex = decltype(index)::value;
      if constexpr (is_reachable(kBackwardBlockShapes, kIndex, kLeastRoom, kMostRoom,
                                 Access::kElements)) {
        constexpr auto kKernel = layer_norm_backward_block<Element, Access, kIndex>;
        using Segment = BlockSegment<Element, Access, kBackwardBlockShapes[kIndex].packs,
                                     kBackwardBlockShapes[kIndex].uses_shared_memory>;
        constexpr std::size_t kBytes = Segment::kSharedPacks * sizeof(Pack);  // of a thread
        allow_shared_bytes<kKernel>(kBytes * kBackwardBlockShapes[kIndex].threads);
        launch(kKernel, plan.groups, plan.threads, kBytes * plan.threads, stream, a, partial_sums);
      }
    });
  });
  launch_sum(a, partial_sums, stream);
}

}  // namespace simple_layernorm::gpu
