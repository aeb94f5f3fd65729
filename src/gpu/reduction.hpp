// Sums over a wave and over a block, in an order fixed by the block's size alone.
#pragma once

#include "gpu/gpu_runtime.hpp"

namespace simple_layernorm::gpu {

// Moving a value between lanes. Shuffles compile to ds_bpermute on AMD, a trip through LDS; DPP and
// permlane stay in the vector unit, but move 32 bits in fixed patterns.
#if defined(__AMDGCN__) || defined(SIMPLE_LAYERNORM_EMULATED_WAVE)

template <class MoveWord>
__device__ float move_words(float value, MoveWord move_word) {
  return __builtin_bit_cast(float, move_word(__builtin_bit_cast(int, value)));
}
template <class MoveWord>
__device__ double move_words(double value, MoveWord move_word) {
  struct Words {
    int low, high;
  };
  const Words words = __builtin_bit_cast(Words, value);
  return __builtin_bit_cast(double, Words{move_word(words.low), move_word(words.high)});
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

constexpr int kQuadSwap1 = 0xB1;       // quad_perm [1, 0, 3, 2]: lane ^ 1
constexpr int kQuadSwap2 = 0x4E;       // quad_perm [2, 3, 0, 1]: lane ^ 2
constexpr int kHalfRowMirror = 0x141;  // lane 7 - l of 8
constexpr int kRowMirror = 0x140;      // lane 15 - l of 16

/// The value of lane ^ kDistance, up to 16: by DPP within four lanes, else by a swizzle, of LDS'
/// crossbar, not of its memory.
template <int kDistance, class T>
__device__ T swap_lanes(T value) {
  static_assert(kDistance <= 16, "a swizzle moves values within 32 lanes");
  if constexpr (kDistance == 1) {
    return dpp<kQuadSwap1>(value);
  } else if constexpr (kDistance == 2) {
    return dpp<kQuadSwap2>(value);
  } else {
    return move_words(
        value, [](int word) { return __builtin_amdgcn_ds_swizzle(word, kDistance << 10 | 0x1F); });
  }
}

/// The sum of `value` over each group of kLanes neighbouring lanes, 8 to a whole wave, in every
/// lane of the group. All lanes of the wave must call it.
template <int kLanes, class T>
__device__ T group_sum(T value) {
  value += swap_lanes<1>(value);
  value += swap_lanes<2>(value);
  value += dpp<kHalfRowMirror>(value);
  if constexpr (kLanes >= 16) value += dpp<kRowMirror>(value);
  if constexpr (kLanes == kWave) {
    T sum = read_lane(value, 0) + read_lane(value, 16);
    if constexpr (kWave == 64) sum += read_lane(value, 32) + read_lane(value, 48);
    return sum;
  } else if constexpr (kLanes == 32) {
    value += swap_lanes<16>(value);
  }
  return value;
}

#else

template <int kDistance, class T>
__device__ T swap_lanes(T value) {
  return shuffle_xor(value, kDistance);
}

/// The sum of `value` over each group of kLanes neighbouring lanes, 8 to a whole wave, in every
/// lane of the group. All lanes of the wave must call it.
template <int kLanes, class T>
__device__ T group_sum(T value) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) value += shuffle_xor(value, distance);
  return value;
}

#endif

template <class T>
__device__ T wave_sum(T value) {
  return group_sum<kWave>(value);
}

/// Sums over all threads of a block of up to kBlockMost threads, a multiple of the wave.
/// `slots` is shared memory for kSlots values.
///
/// A sum costs one barrier: two sets of slots are used in turn, so that a wave may write its part
/// of the next sum while a slower one still reads this one's.
template <class T, int kBlockMost, int kMostSums = 3>
class BlockReduction {
  static constexpr int kMostWaves = kBlockMost <= 8 * kWave    ? 8
                                    : kBlockMost <= 16 * kWave ? 16
                                                               : 32;

 public:
  static constexpr int kSlots = 2 * kMostSums * kMostWaves;

  explicit __device__ BlockReduction(T* slots) : slots_(slots) {}

  /// Replaces every member of `values` by its sum over the block, the same in all threads.
  template <int kCount>
  __device__ __forceinline__ void sum(T (&values)[kCount]) {
    put(values);
    __syncthreads();
    take(values);
  }

  /// The two halves of sum(), for callers that have more to do before its barrier.
  template <int kCount>
  __device__ __forceinline__ void put(const T (&values)[kCount]) {
    static_assert(kCount <= kMostSums, "no slots for so many sums");
    turn_ ^= 1;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const T partial = wave_sum(values[i]);
      if (threadIdx.x % kWave == 0) slots()[i * kMostWaves + threadIdx.x / kWave] = partial;
    }
  }
  /// By whole waves, one or several.
  template <int kCount>
  __device__ __forceinline__ void take(T (&values)[kCount]) const {
    const int waves = blockDim.x / kWave;
    const int part = threadIdx.x % kMostWaves;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = group_sum<kMostWaves>(part < waves ? slots()[i * kMostWaves + part] : T(0));
    }
  }

 private:
  __device__ T* slots() const { return slots_ + turn_ * (kSlots / 2); }

  T* slots_;
  int turn_ = 0;
};

}  // namespace simple_layernorm::gpu
