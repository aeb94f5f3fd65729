// LayerNorm forward for so few wider rows that each block has a multiprocessor for itself: a row is
// shared by as many blocks as there are multiprocessors for it, which hand over their moments. What
// a thread reads, weights and biases included, is asked for at once and stays in registers.
// math/layer_norm.hpp has the formula, segment_tree.hpp the order of the sums.
#pragma once

#include "gpu/block_kernel.hpp"
#include "gpu/handover.hpp"
#include "gpu/launch.hpp"
#include "gpu/launch_plan.hpp"
#include "gpu/layernorm_launch.hpp"
#include "gpu/parts.hpp"
#include "gpu/segment.hpp"

namespace simple_layernorm::gpu {

/// The moments that a row's blocks send each other, merged, for all threads. `slots` is shared
/// memory for kWave entries that no wave still reads. Costs one barrier, and the way to the slowest
/// of these blocks.
__device__ inline Moments<float> moments_of_blocks(std::int64_t row, int attempt,
                                                   const PieceMessages& messages,
                                                   CountedMoments* slots) {
  const int wave = threadIdx.x / kWave, lane = threadIdx.x % kWave;
  const int receivers = max(messages.pieces / kWave, 1);
  if (wave < receivers) {
    const CountedMoments part = messages.receive(row, attempt, wave * kWave);
    if (lane == 0) slots[wave] = part;
  }
  __syncthreads();
  return merge_lanes(slots[lane % receivers], receivers).moments;
}

template <class Element, class Access, int kPacks>
__global__ void __launch_bounds__(kMostWaves* kWave)
    layer_norm_forward_few_rows(LayerNormForward a, PieceMessages messages, float inverse_n,
                                Part part) {
  __shared__ CountedMoments of_waves[kAttempts][kWave];
  __shared__ CountedMoments of_blocks[kAttempts][kWave];
  await_earlier_work();
  using WaveSegment = Segment<Element, Access, kWave, kPacks>;
  const float eps = static_cast<float>(a.eps);
  const std::int64_t row = blockIdx.x / messages.pieces;
  const int piece = static_cast<int>(blockIdx.x) % messages.pieces;
  const int wave = (piece * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) / kWave;
  const Element* const input = static_cast<const Element*>(a.input) + row * a.row_stride;

  const Access access(a, {});
  WaveSegment segment;
  segment.place(RowShape<Element>(a.cols), wave * WaveSegment::kAllPacks, wave == 0);
  segment.load(input);
  // Registers have no room for the parameters of more packs where each takes two.
  constexpr int kCount = Access::Parameters::kCount;
  constexpr int kEarly = (kPacks + kCount - 1) / kCount;
  typename WaveSegment::PackParameters parameters[kEarly];
#pragma unroll
  for (int k = 0; k < kEarly; ++k) parameters[k] = segment.parameters(access, k);
  segment.arrange(input, 1.0f);

  Moments<float> moments;
  float scale = 1.0f;
#pragma unroll 1
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (part.sends(attempt)) {
      const CountedMoments own =
          merge_waves(segment.counted_moments(Hide(row, 63)), of_waves[attempt]);
      moments = own.moments;
      if (messages.pieces > 1 && threadIdx.x == 0) messages.send(row, attempt, piece, own);
    }
    if (part.ends_with(attempt)) return;
    if (messages.pieces > 1) {
      moments = moments_of_blocks(row, attempt, messages, of_blocks[attempt]);
    }
    if (attempt == 0) scale = rescue_scale_of<Element>(moments.m2, eps);
    if (scale == 1.0f) break;
    if (attempt == 0) segment.multiply(scale);
  }
  if (part.ends_with(1)) return;  // there is no second attempt
  const RowStatistics<float> s =
      row_statistics(moments, static_cast<float>(a.cols), inverse_n, eps, scale);
  if (wave == 0 && threadIdx.x == 0) store_statistics(a, row, s);
  segment.write_tail(access, row * a.cols, s);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const auto [weights, biases] = k < kEarly ? parameters[k] : segment.parameters(access, k);
    float w[WaveSegment::kSize], b[WaveSegment::kSize];
    weights.expand_to(w, {});
    biases.expand_to(b, {});
    segment.write_pack(access, k, row * a.cols, s, w, b, {});
  }
  segment.write_packs(access, row * a.cols, true);
}

/// A block for each multiprocessor at most, so that all run at the same time; in parts, any number.
template <class Element>
void launch_forward_few_rows(const LayerNormForward& a, const ForwardPlan& plan,
                             const DeviceProperties& device, void* workspace, void* stream) {
  const PieceMessages messages{static_cast<MomentsSlot*>(workspace), plan.pieces};
  if (plan.pieces > 1) launch_fill(workspace, PieceMessages::bytes(a.rows, plan.pieces), stream);
  with_index<kWideShape + 1>(plan.shape, [&](auto index) {
    with_access<Element>(a, [&](auto* access) {
      using Access = std::remove_pointer_t<decltype(access)>;
      constexpr int kIndex = decltype(index)::value;
      if constexpr (kTakesBlockShape<Element, Access, kIndex>) {
        const auto launch_part = [&](Part part) {
          const bool together = plan.pieces > 1 && !plan.in_parts;
          launch(layer_norm_forward_few_rows<Element, Access, kBlockShapes[kIndex].packs>,
                 {a.rows * plan.pieces, plan.waves * device.wave, 0, stream, together}, a, messages,
                 1.0f / static_cast<float>(a.cols), part);
        };
        if (plan.pieces == 1) return launch_part(Part::whole());
        launch_shared_rows(kAttempts, plan.in_parts, stream, launch_part);
      }
    });
  });
}

}  // namespace simple_layernorm::gpu
