// LayerNorm backward for wider rows: a block per row. Each row is read once, the next one while
// this one is worked on. math/layer_norm.hpp has the formula.
#pragma once

#include "gpu/backward_plan.hpp"
#include "gpu/gradient_segment.hpp"
#include "gpu/launch.hpp"
#include "gpu/partial_sums.hpp"

namespace simple_layernorm::gpu {

/// The segment of a wave, in blocks of up to kThreads threads.
template <class Element, class Access, int kPacks, int kThreads, bool kUsesSharedMemory>
using BlockSegment = GradientSegment<Element, Access, kWave, kPacks,
                                     kKeepsInSharedMemory && kUsesSharedMemory ? kThreads : 0>;

/// Writes the sums of a block, whose threads hold different columns, into partial sums: those in
/// shared memory in the order of the columns. A thread's own of 16-bit elements take two stores,
/// and half of a sector of 32 bytes takes as long to write as the whole. H200, torch 2.11,
/// 2026-11-30, bfloat16: 16384 columns 0.938 of torch.add, by each thread's own 0.922; one row of
/// 16384, 65536, 262144 columns 11.1, 11.2, 12.8 us, by each thread's own 14.1, 13.1, 14.5.
template <class Segment, int kPacks>
__device__ void store_block_sums(const Segment& segment, typename Segment::Sums& sums,
                                 float* weight, float* bias) {
  constexpr int kParts = Segment::kSize / 4;
  const auto& columns = segment.columns();
  if constexpr (Segment::Sums::kInSharedMemory) {
    const int block_packs = static_cast<int>(blockDim.x) * kPacks;
    const int earlier = columns.first_pack() % block_packs;  // of other waves
    const int packs = min(earlier + columns.packs_left(), block_packs);
    const std::int64_t first_col = std::int64_t{columns.first_pack() - earlier} * Segment::kSize;
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < packs * kParts; i += blockDim.x) {
      const int pack = i / kParts, part = i % kParts, k = pack / kWave % kPacks;
      const int thread = pack / (kWave * kPacks) * kWave + pack % kWave;
      const std::int64_t col = first_col + i * 4;
      if (weight != nullptr) store_aligned(weight + col, sums.weight_of(k, part, thread));
      if (bias != nullptr) store_aligned(bias + col, sums.bias_of(k, part, thread));
    }
  } else {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const std::int64_t col = columns.col_of(k) + part * 4;
        if (columns.holds(k) && weight != nullptr) {
          store_aligned(weight + col, sums.weight_of(k, part));
        }
        if (columns.holds(k) && bias != nullptr) store_aligned(bias + col, sums.bias_of(k, part));
      }
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
  await_earlier_work();
  constexpr int kPacks = kBackwardBlockShapes[kIndex].packs;
  constexpr int kThreads = kBackwardBlockShapes[kIndex].threads;
  constexpr bool kUsesSharedMemory = kBackwardBlockShapes[kIndex].uses_shared_memory;
  using Segment = BlockSegment<Element, Access, kPacks, kThreads, kUsesSharedMemory>;
  using Block = BlockReduction<float, kThreads>;
  __shared__ float slots[Block::kSlots];
  SIMPLE_LAYERNORM_DYNAMIC_SHARED(Pack, memory);
  Block block(slots);
  Segment segment(a, threadIdx.x / kWave * (kWave * kPacks), memory);
  const float inverse_n = 1.0f / static_cast<float>(a.cols);
  typename Segment::Sums sums(memory);

  const std::int64_t step = gridDim.x;
  typename Segment::Row current, next;
  std::int64_t row = blockIdx.x;
  segment.load(row, current);
  segment.load_weights();
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
                                 Access::kElements, Access::kIsAligned)) {
        constexpr auto kKernel = layer_norm_backward_block<Element, Access, kIndex>;
        constexpr BackwardBlockShape kShape = kBackwardBlockShapes[kIndex];
        using Segment =
            BlockSegment<Element, Access, kShape.packs, kShape.threads, kShape.uses_shared_memory>;
        constexpr std::size_t kBytes = Segment::kSharedPacks * sizeof(Pack) * kShape.threads;
        allow_shared_bytes<kKernel>(kBytes);
        launch(kKernel, {plan.groups, plan.threads, kBytes, stream}, a, partial_sums);
      }
    });
  });
  launch_sum(a, partial_sums, stream);
}

}  // namespace simple_layernorm::gpu
