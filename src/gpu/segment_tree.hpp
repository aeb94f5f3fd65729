// From the moments of segments to those of a row: a binary tree over the index of the segments,
// neighbours first. Whoever holds a power-of-two run of segments - a lane, a wave, a block - merges
// a subtree, so that a row gets the same bits however it is shared out.
#pragma once

#include "gpu/reduction.hpp"
#include "math/layer_norm.hpp"

namespace simple_layernorm::gpu {

/// How often the moments of a row are taken at most: the second time from a scaled row, see
/// rescue_scale.
constexpr int kAttempts = 2;

/// Moments and the number of values behind them.
struct CountedMoments {
  Moments<float> moments;
  float count;
};

__device__ inline CountedMoments merge(const CountedMoments& a, const CountedMoments& b) {
  return {simple_layernorm::merge(a.moments, a.count, b.moments, b.count), a.count + b.count};
}

/// Merges `own` of lanes 0 … count - 1, a power of two up to the wave, in lane order. Every lane of
/// each group of `count` gets its group's result. All lanes must call it.
__device__ inline CountedMoments merge_lanes(CountedMoments own, int count) {
  for (int distance = 1; distance < count; distance *= 2) {
    const bool is_lower = (threadIdx.x & distance) == 0;
    CountedMoments lower, upper;
    const auto exchange = [&](float mine, float& low, float& high) {
      const float other = shuffle_xor(mine, distance);
      low = is_lower ? mine : other;
      high = is_lower ? other : mine;
    };
    exchange(own.moments.head, lower.moments.head, upper.moments.head);
    exchange(own.moments.tail, lower.moments.tail, upper.moments.tail);
    exchange(own.moments.m2, lower.moments.m2, upper.moments.m2);
    exchange(own.count, lower.count, upper.count);
    own = merge(lower, upper);
  }
  return own;
}

/// Merges the subtrees of a block's waves, a power of two of them. `slots` is shared memory for
/// kWave entries that no wave still reads. Costs one barrier.
__device__ inline CountedMoments merge_waves(const CountedMoments& own, CountedMoments* slots) {
  const int lane = threadIdx.x % kWave;
  const int waves = blockDim.x / kWave;
  if (lane == 0) slots[threadIdx.x / kWave] = own;
  __syncthreads();
  return merge_lanes(slots[lane % waves], waves);
}

}  // namespace simple_layernorm::gpu
