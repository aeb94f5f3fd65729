// The packs of a segment (see segment.hpp) whose row may start at any address. AMD's GPUs move them
// as they are. NVIDIA's move aligned packs alone: a lane loads the one in which its own pack starts
// and takes the rest from the next lane, or loads 32-bit elements one by one (kLoadsWords); stores
// are the mirror image. What the segment's two ends share with their surroundings moves by
// elements, so that nothing outside of it is touched.
#pragma once

#include "gpu/packs.hpp"

namespace simple_layernorm::gpu {

/// How many words a pack starts after an aligned one: known to the compiler, or not.
template <int kWords>
struct Quarter {
  static constexpr int kMost = kWords;
  static constexpr int value = kWords;
};
struct AnyQuarter {
  static constexpr int kMost = 3;
  int value;
};

/// words[i] of the lower word from bit `bits` on, and of the upper word below it; bits < 32.
__device__ inline std::uint32_t funnel_down(std::uint32_t low, std::uint32_t high, int bits) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(low, high, bits);
#else
  return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) >> bits);
#endif
}
__device__ inline std::uint32_t funnel_up(std::uint32_t low, std::uint32_t high, int bits) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_l(low, high, bits);
#else
  return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) << bits >> 32);
#endif
}

/// words[i] = words[i + quarter], as far as there are so many.
template <int kCount, class Quarter>
__device__ __forceinline__ void move_down(std::uint32_t (&words)[kCount], Quarter quarter) {
#pragma unroll
  for (int distance = 1; distance <= 2; ++distance) {
#pragma unroll
    for (int i = 0; i + distance < kCount; ++i) {
      if (quarter.value & distance) words[i] = words[i + distance];
    }
  }
}

/// words[i] = words[i - quarter].
template <int kCount, class Quarter>
__device__ __forceinline__ void move_up(std::uint32_t (&words)[kCount], Quarter quarter) {
#pragma unroll
  for (int distance = 1; distance <= 2; ++distance) {
#pragma unroll
    for (int i = kCount - 1; i >= distance; --i) {
      if (quarter.value & distance) words[i] = words[i - distance];
    }
  }
}

/// Packs of elements T (const T: to be read) of kLanes lanes, kPacks pieces of kCount packs to a
/// lane: piece k of lane l is piece k * kLanes + l of the segment. All lanes of a wave must call
/// its functions, whatever they hold. `packs` is anything with kPacks * kCount packs by index.
/// kHasRoom: for the addresses of single elements.
template <class T, int kLanes, int kPacks, int kCount, bool kHasRoom>
class UnalignedPacks {
  static constexpr int kSize = kPackSize<T>;
  static constexpr bool kHas16Bits = sizeof(T) == 2;
  /// Elements of 32 bits are loaded one by one: no lane needs another's. H200, torch 2.11,
  /// 2026-11-30, float32, backward over torch.add, 773, 1001, 4097, 5001 columns: 0.74, 0.88, 0.89,
  /// 0.85, by whole packs 0.66, 0.81, 0.78, 0.79; forward over copy, 4097 columns of 8 packs 0.978,
  /// 0.871. 16 bits so, by words and an element: forward 4097 columns 0.59 where lanes reach 0.80.
  static constexpr bool kLoadsWords = !kMovesUnalignedPacks && !kHas16Bits && kHasRoom;
  /// Rows of a wave's groups may each start elsewhere: then lanes cannot branch on it.
  static constexpr bool kMayDiffer = kLanes < kWave;

 public:
  /// Of a segment with the whole pieces [first, first + pieces) of a row; pieces may be 0.
  __device__ UnalignedPacks(T* row, int first, int pieces)
      : first_(row + first * (kCount * kSize)),
        own_(first_ + static_cast<int>(threadIdx.x % kLanes) * (kCount * kSize)),
        pieces_(pieces),
        lane_(threadIdx.x % kLanes),
        phase_(static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % sizeof(Pack))) {}

  /// Issues the loads. What they bring is of use after `arrange`.
  template <class Packs>
  __device__ __forceinline__ void load(Packs& packs) const {
    const int shift = kMovesUnalignedPacks ? 0 : this->shift();
#pragma unroll
    for (int i = 0; i < kPacks * kCount; ++i) {
      if constexpr (kLoadsWords) {
        packs[i] = holds(i / kCount, pieces_) ? load_words(own_ + offset_of(i)) : Pack{};
      } else {
        const bool is_edge = i == 0 && lane_ == 0 && has_edges();
        const bool is_loaded = holds(i / kCount, pieces_) && !is_edge;
        packs[i] = is_loaded ? load_pack(own_ - shift + offset_of(i)) : Pack{};
      }
    }
  }

  /// The elements that go with them, one to a lane: lane first_lane + i brings number i.
  __device__ bool has_edge(int i) const { return has_edges() && pieces_ > 0 && i < kSize; }
  __device__ T* edge(int i) const {
    return i < shift() ? end() - shift() + i : first_ + i - shift();
  }
  __device__ std::uint32_t load_edge() const {
    return !kLoadsWords && has_edge(lane_) ? raw_bits(edge(lane_)) : 0;
  }

  /// Makes of what was loaded the packs as they lie in the row; those beyond its end hold zeros.
  template <class Packs>
  __device__ __forceinline__ void arrange(Packs& packs, std::uint32_t edge,
                                          int first_lane = 0) const {
    if constexpr (!kMovesUnalignedPacks && !kLoadsWords) {
      if (!any_lane(has_edges())) return;
      const Pack border = border_of(edge, first_lane);
      if (lane_ == 0) packs[0] = border;
      with_quarter([&](auto quarter) { arrange(packs, border, quarter); });
    }
  }

  /// Writes the packs as they lie in the row, or nothing.
  template <class Packs>
  __device__ __forceinline__ void store(const Packs& packs, bool exists) const {
    const int pieces = exists ? pieces_ : 0;
    if constexpr (!kMovesUnalignedPacks) {
      if (any_lane(has_edges())) {
        return with_quarter([&](auto quarter) { store(packs, pieces, quarter); });
      }
    }
#pragma unroll
    for (int i = 0; i < kPacks * kCount; ++i) {
      if (holds(i / kCount, pieces)) store_pack(own_ + offset_of(i), packs[i]);
    }
  }

 private:
  // Aligned pack 0 holds the first elements of the segment, aligned pack `pieces_ * kCount` its
  // last, and together they are as many as a pack has. `border` is both, each element in its place.
  // It takes the place of either, as nobody looks at the other's share.

  template <class Packs, class Quarter>
  __device__ __forceinline__ void arrange(Packs& packs, const Pack& border, Quarter quarter) const {
    constexpr int kTaken = Quarter::kMost + kHas16Bits;  // words, from the next lane
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      std::uint32_t words[4 * kCount + 4] = {};
#pragma unroll
      for (int i = 0; i < 4 * kCount; ++i) words[i] = packs[k * kCount + i / 4].words[i % 4];
#pragma unroll
      for (int i = 0; i < kTaken; ++i) {
        const std::uint32_t own = words[i];
        const std::uint32_t after = k + 1 < kPacks ? packs[(k + 1) * kCount].words[i] : 0;
        const std::uint32_t next = shuffle_from<kLanes>(lane_ == 0 ? after : own, lane_ + 1);
        words[4 * kCount + i] = is_last(k, pieces_) ? border.words[i] : next;
      }
      move_down(words, quarter);
#pragma unroll
      for (int i = 0; i < 4 * kCount; ++i) {
        packs[k * kCount + i / 4].words[i % 4] =
            kHas16Bits ? funnel_down(words[i], words[i + 1], bits()) : words[i];
      }
    }
  }

  template <class Packs, class Quarter>
  __device__ __forceinline__ void store(const Packs& packs, int pieces, Quarter quarter) const {
    constexpr int kFirstTaken = 4 - Quarter::kMost - kHas16Bits;  // word, of the previous lane
    std::uint32_t last[4] = {};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      std::uint32_t words[4 + 4 * kCount] = {};
#pragma unroll
      for (int i = 0; i < 4 * kCount; ++i) words[4 + i] = packs[k * kCount + i / 4].words[i % 4];
#pragma unroll
      for (int i = kFirstTaken; i < 4; ++i) {
        const std::uint32_t own = words[4 * kCount + i];
        const std::uint32_t before = k > 0 ? packs[k * kCount - 1].words[i] : own;
        const bool is_end = lane_ == kLanes - 1;
        words[i] = shuffle_from<kLanes>(is_end ? before : own, lane_ - 1);
        if (is_last(k, pieces)) last[i] = own;
      }
      move_up(words, quarter);
#pragma unroll
      for (int part = 0; part < kCount; ++part) {
        Pack pack;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t* const word = &words[4 + part * 4 + i];
          pack.words[i] = kHas16Bits ? funnel_up(word[-1], word[0], bits()) : word[0];
        }
        const bool is_edge = k == 0 && part == 0 && lane_ == 0;
        if (holds(k, pieces) && !is_edge) {
          store_pack(own_ - shift() + offset_of(k * kCount + part), pack);
        }
      }
    }
    store_ends<kFirstTaken>(packs[0], last, pieces);
  }

  /// By a lane for each element. Lane 0 has the first pack, the words of the last one are where it
  /// is. After all other stores: between them, these took a fifth of the time.
  template <int kFirstTaken>
  __device__ __forceinline__ void store_ends(const Pack& first, const std::uint32_t (&last)[4],
                                             int pieces) const {
    const bool is_first = lane_ < kSize - shift();
    std::uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t of_first = 0, of_last = 0;
      if (kMayDiffer || i < kFirstTaken + kHas16Bits)
        of_first = shuffle_from<kLanes>(first.words[i], 0);
      if (i >= kFirstTaken) of_last = shuffle_from<kLanes>(last[i], pieces - 1);
      if (lane_ / (kSize / 4) == i) word = is_first ? of_first : of_last;
    }
    if (pieces == 0 || lane_ >= kSize) return;
    T* const p = is_first ? first_ + lane_ : end() - kSize + lane_;
    if constexpr (kHas16Bits) {
      p->bits = static_cast<std::uint16_t>(word >> lane_ % 2 * 16);
    } else {
      *p = float_of(word);
    }
  }

  /// The border, in all lanes, from what each lane loaded of it.
  __device__ __forceinline__ Pack border_of(std::uint32_t edge, int first_lane) const {
    if constexpr (kHas16Bits) edge |= shuffle_xor(edge, 1) << 16;  // right in even lanes
    Pack border;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      border.words[i] = shuffle_from<kLanes>(edge, first_lane + i * (kSize / 4));
    return border;
  }

  static __device__ Pack load_words(const T* p) {
    return {{raw_bits(p), raw_bits(p + 1), raw_bits(p + 2), raw_bits(p + 3)}};
  }

  template <class F>
  __device__ __forceinline__ void with_quarter(F f) const {
    if constexpr (kMayDiffer) {
      f(AnyQuarter{phase_ / 4});
    } else {
      // Asked of the wave, so that the compiler knows that its lanes stay together.
      if (any_lane(phase_ / 4 == 1)) return f(Quarter<1>{});
      if (any_lane(phase_ / 4 == 2)) return f(Quarter<2>{});
      if (any_lane(phase_ / 4 == 3)) return f(Quarter<3>{});
      if constexpr (kHas16Bits) f(Quarter<0>{});
    }
  }

  __device__ bool has_edges() const { return !kMovesUnalignedPacks && (kMayDiffer || phase_ != 0); }
  __device__ int shift() const { return phase_ / static_cast<int>(sizeof(T)); }
  __device__ int bits() const { return phase_ % 4 * 8; }
  __device__ T* end() const { return first_ + pieces_ * (kCount * kSize); }
  __device__ bool holds(int k, int pieces) const { return k * kLanes < pieces - lane_; }
  __device__ bool is_last(int k, int pieces) const { return k * kLanes + 1 == pieces - lane_; }
  /// From the lane's first pack to its pack i.
  static constexpr __device__ int offset_of(int i) {
    return (i / kCount * kLanes * kCount + i % kCount) * kSize;
  }

  T* first_;  ///< of the segment
  T* own_;    ///< of the lane
  int pieces_;
  int lane_;
  int phase_;  ///< bytes from the aligned address before
};

}  // namespace simple_layernorm::gpu
