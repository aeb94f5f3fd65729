// LayerNorm backward for the widest rows: a group of blocks per row, that hand over their sums.
// Each row is read once, and finished when the sums of all its pieces have come, a turn later.
// math/layer_norm.hpp has the formula.
#pragma once

#include <algorithm>

#include "gpu/backward_block_kernel.hpp"
#include "gpu/gradient_handover.hpp"
#include "gpu/parts.hpp"

namespace simple_layernorm::gpu {

/// How many rows a group works on at a time.
template <class Access, int kIndex>
constexpr int kSplitRows =
    Access::kIsAligned && !Access::kIsWide ? kBackwardSplitShapes[kIndex].rows : 1;

/// A group of blocks per row, kRows rows at a time. They send each other the sums of these while
/// they finish the rows before them, whose sums have come meanwhile.
template <class Element, class Access, int kIndex>
__global__ void __launch_bounds__(
    kBackwardSplitShapes[kIndex].threads,
    (kResident<kBackwardSplitShapes[kIndex].threads, kBackwardSplitShapes[kIndex].blocks,
               sizeof(Element) == 2>))
    layer_norm_backward_split(LayerNormBackward a, PartialSums<float> partial_sums,
                              SumsExchange exchange, Part part) {
  if constexpr (kBackwardSplitShapes[kIndex].needs > kRoom) return;
  await_earlier_work();
  constexpr int kPacks = kBackwardSplitShapes[kIndex].packs;
  constexpr int kThreads = kBackwardSplitShapes[kIndex].threads;
  constexpr bool kUsesSharedMemory = kBackwardSplitShapes[kIndex].uses_shared_memory;
  constexpr int kRows = kSplitRows<Access, kIndex>;
  using Segment = BlockSegment<Element, Access, kPacks, kThreads, kUsesSharedMemory>;
  using Block = BlockReduction<float, kThreads, 3 * kRows>;
  __shared__ float slots[Block::kSlots];
  __shared__ GradientAverages<float> received[2][kRows];
  SIMPLE_LAYERNORM_DYNAMIC_SHARED(Pack, memory);
  Block block(slots);
  const int piece = blockIdx.x % exchange.pieces;
  const std::int64_t group = blockIdx.x / exchange.pieces;
  const int wave = piece * (kThreads / kWave) + threadIdx.x / kWave;
  Segment segment(a, wave * (kWave * kPacks), memory);
  const float inverse_n = 1.0f / static_cast<float>(a.cols);
  typename Segment::Sums sums(memory);

  const std::int64_t groups = gridDim.x / exchange.pieces, step = groups * kRows;
  const auto row_of = [&](std::int64_t first, int u) { return first + u * groups; };
  typename Segment::Row current[kRows], next[kRows];
  typename Segment::KeptRow previous[kRows];
#pragma unroll
  for (int u = 0; u < kRows; ++u) previous[u].place(memory, u);
  const auto load = [&](std::int64_t first, auto& rows) SIMPLE_LAYERNORM_INLINED {
#pragma unroll
    for (int u = 0; u < kRows; ++u) segment.load(min(row_of(first, u), a.rows - 1), rows[u]);
  };
  // By the first wave. Of a row that does not exist no message comes, and all sums are zero.
  const bool is_first_wave = threadIdx.x < kWave, only_sends = part.ends_with(0);
  int turn = 0;
  const auto look = [&](std::int64_t first, auto& words) SIMPLE_LAYERNORM_INLINED {
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const std::int64_t row = row_of(first, u);
      if (row < a.rows) words[u] = exchange.look(row);
    }
  };
  const auto receive = [&](std::int64_t first, auto& words) SIMPLE_LAYERNORM_INLINED {
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const std::int64_t row = row_of(first, u);
      float s[3] = {};
      if (row < a.rows) exchange.receive(row, words[u], s);
      if (threadIdx.x == 0) received[turn][u] = gradient_averages(s[0], s[1], s[2], inverse_n);
    }
  };
  const auto finish = [&](std::int64_t first) SIMPLE_LAYERNORM_INLINED {
    if constexpr (kRows == 1) {
      segment.finish(first, previous[0], received[turn][0], sums, Hide(first, 62));
      segment.write_packs(first, previous[0], true);
    } else {
      std::int64_t rows[kRows];
      bool exist[kRows];
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        rows[u] = row_of(first, u);
        exist[u] = rows[u] < a.rows;
      }
      segment.finish_together(rows, exist, previous, received[turn], sums, Hide(first, 62));
    }
  };

  std::int64_t first = group;
  load(first, current);
  segment.load_weights();
#pragma unroll 1
  for (; first < a.rows; first += step) {
    const bool has_previous = first > group && !only_sends;
    const bool receives = has_previous && is_first_wave;
    SumsExchange::Words words[kRows]{};
    if (receives) look(first - step, words);
    float s[3 * kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      segment.arrange(min(row_of(first, u), a.rows - 1), current[u]);
      float of_row[3];
      segment.sums_of(current[u], of_row, Hide(first, 63));
#pragma unroll
      for (int i = 0; i < 3; ++i) s[3 * u + i] = of_row[i];
    }
    block.put(s);
    if (receives) receive(first - step, words);
    load(first + step, next);  // not earlier: the messages would wait for it
    __syncthreads();
    if (is_first_wave) {
      block.take(s);
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        const std::int64_t row = row_of(first, u);
        if (threadIdx.x == 0 && row < a.rows && part.sends(0)) {
          exchange.send(row, piece, {s[3 * u], s[3 * u + 1], s[3 * u + 2]});
        }
      }
    }
    if (has_previous) finish(first - step);
    turn ^= 1;
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      previous[u].keep(current[u]);
      current[u] = next[u];
    }
  }
  if (only_sends) return;
  if (is_first_wave) {
    SumsExchange::Words words[kRows];
    look(first - step, words);
    receive(first - step, words);
  }
  __syncthreads();
  finish(first - step);
  store_block_sums<Segment, kPacks>(segment, sums, partial_sums.weight_row(group),
                                    partial_sums.bias_row(group));
}

/// Dynamic shared memory of a block.
template <class Element, class Access, int kIndex>
constexpr std::size_t split_shared_bytes() {
  constexpr BackwardSplitShape kShape = kBackwardSplitShapes[kIndex];
  using Segment =
      BlockSegment<Element, Access, kShape.packs, kShape.threads, kShape.uses_shared_memory>;
  constexpr int kRows = kSplitRows<Access, kIndex>;
  return (Segment::kSharedPacks + kRows * Segment::kSharedRowPacks) * sizeof(Pack) * kShape.threads;
}

/// Blocks of a multiprocessor at the same time.
template <class Element, class Access, int kIndex>
int resident_split_blocks() {
  constexpr auto kKernel = layer_norm_backward_split<Element, Access, kIndex>;
  constexpr std::size_t kBytes = split_shared_bytes<Element, Access, kIndex>();
  allow_shared_bytes<kKernel>(kBytes);
  return blocks_per_multiprocessor<kKernel>(kBackwardSplitShapes[kIndex].threads, kBytes);
}

/// Starts no more groups than can run at the same time, see launch_split of the forward pass; nor
/// more than of the kernel for rows that are not aligned, which needs more registers: the bits of
/// the parameters' gradients depend on the number of groups, and must not on where arrays lie.
template <class Element>
void launch_backward_split(const LayerNormBackward& a, const BackwardPlan& plan,
                           const DeviceProperties& device, void* workspace, void* stream) {
  const std::size_t messages = SumsExchange::bytes(a.rows, plan.pieces);
  const SumsExchange exchange{static_cast<SumsSlot*>(workspace), plan.pieces};
  launch_fill(workspace, messages, stream);
  with_index<kBackwardSplitShapeCount>(plan.shape, [&](auto index) {
    with_gradient_access<Element>(a, [&](auto* access) {
      using Access = std::remove_pointer_t<decltype(access)>;
      constexpr int kIndex = decltype(index)::value;
      if constexpr (is_reachable(kBackwardSplitShapes, kIndex, kLeastRoom, kMostRoom,
                                 Access::kElements, Access::kIsAligned)) {
        constexpr auto kKernel = layer_norm_backward_split<Element, Access, kIndex>;
        constexpr std::size_t shared_bytes = split_shared_bytes<Element, Access, kIndex>();
        using Unaligned = AnyGradients<Element, typename Access::Grad>;
        const std::int64_t resident = std::int64_t{device.multiprocessors} *
                                      std::min(resident_split_blocks<Element, Access, kIndex>(),
                                               resident_split_blocks<Element, Unaligned, kIndex>());
        const PartialSums<float> partial_sums(a, std::min(plan.groups, resident / plan.pieces),
                                              static_cast<char*>(workspace) + messages);
        launch_shared_rows(1, plan.in_parts, stream, [&](Part part) {
          const bool together = !plan.in_parts;
          launch(kKernel,
                 {partial_sums.groups * plan.pieces, plan.threads, shared_bytes, stream, together},
                 a, partial_sums, exchange, part);
        });
        launch_sum(a, partial_sums, stream);
      }
    });
  });
}

}  // namespace simple_layernorm::gpu
