// Sums over a wave and over a block, in an order fixed by the block's size alone.
#pragma once

#include <cstring>

#include "gpu/gpu_runtime.hpp"

namespace simple_layernorm::gpu {

// Moving a value between lanes. Shuffles compile to ds_bpermute on AMD, a trip through LDS; DPP and
// permlane stay in the vector unit, but move 32 bits in fixed patterns.
#if defined(__AMDGCN__) || defined(SIMPLE_LAYERNORM_EMULATED_WAVE)

template <class T, class MoveWord>
__device__ T move_words(T value, MoveWord move_word) {
  int words[sizeof(T) / sizeof(int)];
  std::memcpy(words, &value, sizeof value);
  for (int& word : words) word = move_word(word);
  std::memcpy(&value, words, sizeof value);
  return value;
}

template <int kControl, class T>
__device__ T dpp(T value) {
  return move_words(value, [](int word) {
    return __builtin_amdgcn_update_dpp(word, word, kControl, 0xf, 0xf, false);
  });
}

template <class T>
__device__ T read_lane(T value, int lane) {
  return move_words(value, [lane](int word) { return __builtin_amdgcn_readlane(word, lane); });
}

constexpr int kQuadSwap1 = 0xB1;     // quad_perm [1, 0, 3, 2]: lane ^ 1
constexpr int kQuadSwap2 = 0x4E;     // quad_perm [2, 3, 0, 1]: lane ^ 2
constexpr int kHalfRowMirror = 0x141;  // lane 7 - l of 8
constexpr int kRowMirror = 0x140;      // lane 15 - l of 16

/// The sum of `value` over all lanes of the wave, in every lane. All lanes must call it.
template <class T>
__device__ T wave_sum(T value) {
  value += dpp<kQuadSwap1>(value);
  value += dpp<kQuadSwap2>(value);
  value += dpp<kHalfRowMirror>(value);
  value += dpp<kRowMirror>(value);
  T sum = read_lane(value, 0) + read_lane(value, 16);
  if constexpr (kWave == 64) sum += read_lane(value, 32) + read_lane(value, 48);
  return sum;
}

#else

/// The sum of `value` over all lanes of the wave, in every lane. All lanes must call it.
template <class T>
__device__ T wave_sum(T value) {
#pragma unroll
  for (int distance = 1; distance < kWave; distance *= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

#endif

/// Sums over all threads of a block, whose size is a multiple of the wave size. `slots` is shared
/// memory for kReductionSlots values.
///
/// A sum costs one barrier: two sets of slots are used in turn, so that a wave may write its part of
/// the next sum while a slower one still reads this one's.
constexpr int kMostWaves = 1024 / kSmallestWave;
constexpr int kMostSums = 3;
constexpr int kReductionSlots = 2 * kMostSums * kMostWaves;

template <class T>
class BlockReduction {
 public:
  explicit __device__ BlockReduction(T* slots) : slots_(slots) {}

  /// Replaces every member of `values` by its sum over the block, the same in all threads.
  template <int kCount>
  __device__ void sum(T (&values)[kCount]) {
    static_assert(kCount <= kMostSums, "no slots for so many sums");
    const int lane = threadIdx.x % kWave;
    const int wave = threadIdx.x / kWave;
    const int waves = blockDim.x / kWave;
    T* slots = slots_ + turn_ * (kMostSums * kMostWaves);
    turn_ ^= 1;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const T partial = wave_sum(values[i]);
      if (lane == 0) slots[i * kMostWaves + wave] = partial;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = wave_sum(lane < waves ? slots[i * kMostWaves + lane] : T(0));
    }
  }

 private:
  T* slots_;
  int turn_ = 0;
};

}  // namespace simple_layernorm::gpu
