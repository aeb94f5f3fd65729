// Sums and maxima over a wave and over a block, in an order fixed by the block's size alone.
#pragma once

#include <cstring>

#include "gpu/gpu_runtime.hpp"

namespace simple_layernorm::gpu {

struct Sum {
  template <class T>
  static constexpr T identity = T(0);
  template <class T>
  static __device__ T combine(T a, T b) {
    return a + b;
  }
};

/// Of values that are not negative. NaN may get lost.
struct Largest {
  template <class T>
  static constexpr T identity = T(0);
  template <class T>
  static __device__ T combine(T a, T b) {
    return a > b ? a : b;
  }
};

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

/// The reduction of `value` over all lanes of the wave, in every lane. All lanes must call it.
template <class Op, class T>
__device__ T wave_reduce(T value) {
  value = Op::combine(value, dpp<kQuadSwap1>(value));
  value = Op::combine(value, dpp<kQuadSwap2>(value));
  value = Op::combine(value, dpp<kHalfRowMirror>(value));
  value = Op::combine(value, dpp<kRowMirror>(value));
  T result = Op::combine(read_lane(value, 0), read_lane(value, 16));
  if constexpr (kWave == 64) {
    result = Op::combine(result, Op::combine(read_lane(value, 32), read_lane(value, 48)));
  }
  return result;
}

#else

/// The reduction of `value` over all lanes of the wave, in every lane. All lanes must call it.
template <class Op, class T>
__device__ T wave_reduce(T value) {
#pragma unroll
  for (int distance = 1; distance < kWave; distance *= 2) {
    value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

#endif

/// Reductions over all threads of a block, whose size is a multiple of the wave size. `slots` is
/// shared memory for kReductionSlots values.
///
/// A reduction costs one barrier: two sets of slots are used in turn, so that a wave may write the
/// next reduction's partial results while a slower one still reads this one's.
constexpr int kMostWaves = 1024 / kSmallestWave;
constexpr int kMostValues = 3;
constexpr int kReductionSlots = 2 * kMostValues * kMostWaves;

template <class T>
class BlockReduction {
 public:
  explicit __device__ BlockReduction(T* slots) : slots_(slots) {}

  /// Reduces every member of `values` over the block. Afterwards all threads hold the same result.
  template <class Op, int kCount>
  __device__ void reduce(T (&values)[kCount]) {
    static_assert(kCount <= kMostValues, "no slots for so many values");
    const int lane = threadIdx.x % kWave;
    const int wave = threadIdx.x / kWave;
    const int waves = blockDim.x / kWave;
    T* slots = slots_ + turn_ * (kMostValues * kMostWaves);
    turn_ ^= 1;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const T partial = wave_reduce<Op>(values[i]);
      if (lane == 0) slots[i * kMostWaves + wave] = partial;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const T partial = lane < waves ? slots[i * kMostWaves + lane] : Op::template identity<T>;
      values[i] = wave_reduce<Op>(partial);
    }
  }

 private:
  T* slots_;
  int turn_ = 0;
};

}  // namespace simple_layernorm::gpu
