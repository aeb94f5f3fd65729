// A segment: the part of a row that kLanes neighbouring lanes hold in registers, kPacks packs each.
// Pack k of lane l is the segment's pack k * kLanes + l, so that a load instruction reads one
// contiguous stretch. All sums go in an order that (kLanes, kPacks) fixes.
#pragma once

#include "gpu/private_packs.hpp"
#include "gpu/row_access.hpp"
#include "gpu/segment_tree.hpp"
#include "gpu/unaligned.hpp"
#include "math/layer_norm.hpp"

namespace simple_layernorm::gpu {

/// A row's columns as whole packs and the few columns after them. Those are shared out one to a
/// lane among the first lanes of the first segment.
template <class Element>
struct RowShape {
  int packs;
  int tail;

  explicit __device__ RowShape(std::int64_t cols)
      : packs(static_cast<int>(cols / kPackSize<Element>)),
        tail(static_cast<int>(cols % kPackSize<Element>)) {}

  __device__ std::int64_t first_tail_col() const {
    return std::int64_t{packs} * kPackSize<Element>;
  }
};

/// Which columns of a row one of kLanes lanes holds.
template <class Element, bool kHasTail, int kLanes>
class LaneColumns {
  static constexpr int kSize = kPackSize<Element>;

 public:
  /// Of the segment that starts at pack `first`, and of the row's tail if this segment has it.
  __device__ __forceinline__ void place(const RowShape<Element>& shape, int first, bool has_tail) {
    left_ = shape.packs - first - lane();
    col_ = std::int64_t{first + lane()} * kSize;
    tail_ = has_tail ? shape.tail : 0;
    owns_tail_ = kHasTail && has_tail && lane() < shape.tail;
  }

  /// Whether the lane's pack k lies within the row.
  __device__ bool holds(int k) const { return k * kLanes < left_; }
  /// Of the segment of kLanes * kPacks packs: its first one, how many there are from it to the
  /// row's end (may be negative), and how many of its own lie within the row.
  __device__ int first_pack() const { return static_cast<int>(col_) / kSize - lane(); }
  __device__ int packs_left() const { return left_ + lane(); }
  template <int kPacks>
  __device__ int packs() const {
    return min(max(packs_left(), 0), kLanes * kPacks);
  }
  /// First column of pack k.
  __device__ std::int64_t col_of(int k) const { return col_ + k * kLanes * kSize; }
  /// How many of the columns after the row's last pack its lanes hold, whether this one does.
  __device__ int tail() const { return tail_; }
  __device__ bool owns_tail() const { return owns_tail_; }
  __device__ int first_tail_col() const { return static_cast<int>(col_) + left_ * kSize; }
  __device__ int tail_col() const { return first_tail_col() + lane(); }

 private:
  static __device__ int lane() { return threadIdx.x % kLanes; }

  int left_;          ///< packs from this lane's first to the row's end; may be negative
  std::int64_t col_;  ///< first column of this lane's first pack
  int tail_;
  bool owns_tail_;
};

/// Mean and rstd for the backward pass, if they are wanted.
__device__ inline void store_statistics(const LayerNormForward& a, std::int64_t row,
                                        const RowStatistics<float>& s) {
  if (a.mean != nullptr) static_cast<float*>(a.mean)[row] = s.unscaled_mean();
  if (a.rstd != nullptr) static_cast<float*>(a.rstd)[row] = s.unscaled_rstd();
}

/// Pairwise, so that the additions of a pack do not wait for each other.
template <int kSize>
__device__ float sum_of(const float (&x)[kSize]) {
  if constexpr (kSize == 4) {
    return (x[0] + x[1]) + (x[2] + x[3]);
  } else {
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
  }
}

template <int kSize>
__device__ float sum_of_squares(const float (&x)[kSize]) {
  float even = x[0] * x[0];
  float odd = x[1] * x[1];
#pragma unroll
  for (int i = 2; i < kSize; i += 2) {
    even = fma(x[i], x[i], even);
    odd = fma(x[i + 1], x[i + 1], odd);
  }
  return even + odd;
}

template <class Element, class Access, int kLanes, int kPacks, int kSharedThreads = 0>
class Segment {
 public:
  static constexpr int kSize = kPackSize<Element>;
  static constexpr int kAllPacks = kLanes * kPacks;

  /// `memory`: kPacks packs of shared memory for each thread of the block, if it lies there.
  explicit __device__ Segment(Pack* memory = nullptr) : packs_(memory) {}

  /// The same values, for as long as `other` takes those of another row.
  __device__ __forceinline__ void keep(const Segment<Element, Access, kLanes, kPacks>& other) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) packs_[k] = other.packs_[k];
    tail_ = other.tail_;
  }

  /// Fixes which columns this lane holds: see LaneColumns.
  __device__ __forceinline__ void place(const RowShape<Element>& shape, int first, bool has_tail) {
    columns_.place(shape, first, has_tail);
  }

  /// Issues the loads of the segment of `row`. Lanes beyond the row's end hold zeros. Aligned
  /// packs may be asked to stay in cache.
  __device__ __forceinline__ void load(const Element* row, bool keeps_cached = false) {
    if (Access::kIsAligned && keeps_cached) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        packs_[k] = holds(k) ? load_aligned_lasting(row + col_of(k)) : Pack{};
      }
    } else if constexpr (Access::kIsAligned) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        packs_[k] = holds(k) ? load_aligned(row + col_of(k)) : Pack{};
      }
    } else {
      unaligned(row).load(packs_);
      edge_ = unaligned(row).load_edge();
    }
    tail_ = columns_.owns_tail() ? gpu::load<float>(row + columns_.tail_col()) : 0.0f;
  }

  /// Asks for the same of a row to be brought to the L2 cache, by a lane for each kPacks packs: a
  /// cache line if they are eight.
  __device__ __forceinline__ void prefetch(const Element* row) const {
    const int first = columns_.first_pack() + static_cast<int>(threadIdx.x % kLanes) * kPacks;
    if (first < columns_.first_pack() + columns_.template packs<kPacks>()) {
      gpu::prefetch(row + std::int64_t{first} * kSize);
    }
  }

  /// To be called once they are all issued; multiplies the row with `scale`, a power of two.
  __device__ __forceinline__ void arrange(const Element* row, float scale) {
    if constexpr (!Access::kIsAligned) unaligned(row).arrange(packs_, edge_);
    if (scale != 1.0f) multiply(scale);
  }

  /// By a power of two.
  __device__ __forceinline__ void multiply(float scale) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float x[kSize];
      expand<Element>(packs_[k], x, {0});
#pragma unroll
      for (float& value : x) value *= scale;
      packs_[k] = compress<Element>(x);
    }
    tail_ *= scale;
  }

  /// `hide`, but not known before all loads are done: or the compiler issues the last of them when
  /// it has used the first. H200, torch 2.11, 2026-11-30, forward over copy, float16 of 5120 and
  /// 16384 columns 0.979 and 0.994, without 0.866 and 0.938.
  __device__ __forceinline__ Hide once_loaded(Hide hide) const {
    std::uint32_t words = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) words |= packs_[k].words[0];
    hide.zero &= words;
    return hide;
  }

  /// Sum of this lane's values in the segment's sample: the first pack of every lane, and the tail
  /// where these are not kLanes packs.
  __device__ __forceinline__ float sample_sum(Hide hide) const {
    float x[kSize];
    expand<Element>(packs_[0], x, hide);
    return sum_of(x) + (is_sample_full() ? 0.0f : tail_);
  }
  /// 1 over the number of the sample's values, given that of the segment's.
  __device__ __forceinline__ float inverse_sample(float inverse_n) const {
    return is_sample_full() ? 1.0f / (kLanes * kSize) : inverse_n;
  }

  /// The first value of this lane; of the first lane, the segment's first.
  __device__ __forceinline__ float first_value() const {
    float x[kSize];
    expand<Element>(packs_[0], x, {});
    const float first = x[0];
    const float tail = tail_;
    return holds(0) ? first : tail;
  }

  /// Sums of this lane's values about `shift` and of their squares.
  __device__ __forceinline__ void centred_lane_sums(float shift, Hide hide, float& s1,
                                                    float& s2) const {
    const float tail = columns_.owns_tail() ? tail_ - shift : 0.0f;
    s1 = tail;
    s2 = tail * tail;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float x[kSize];
      expand<Element>(packs_[k], x, hide);
#pragma unroll
      for (float& value : x) value -= shift;
      const float first = sum_of(x);
      const float second = sum_of_squares(x);
      s1 += holds(k) ? first : 0.0f;
      s2 += holds(k) ? second : 0.0f;
    }
  }

  /// Moments of the segment's values, in all of its lanes; inverse_n is 1 over their number. They
  /// are centred on the sample's mean, so that a lane's sums need not wait for its last load.
  __device__ __forceinline__ Moments<float> moments(float inverse_n, Hide hide) const {
    const float shift = group_sum<kLanes>(sample_sum(hide)) * inverse_sample(inverse_n);
    float s1, s2;
    centred_lane_sums(shift, hide, s1, s2);
    return moments_of(shift, group_sum<kLanes>(s1), group_sum<kLanes>(s2), inverse_n);
  }

  /// The same with their number.
  __device__ __forceinline__ CountedMoments counted_moments(Hide hide) const {
    constexpr float kFull = kAllPacks * kSize;
    const float n = static_cast<float>(columns_.template packs<kPacks>() * kSize + columns_.tail());
    return {moments(n == kFull ? 1.0f / kFull : rough_quotient(1.0f, fmaxf(n, 1.0f)), hide), n};
  }

  /// Weight and bias for pack k as they lie in memory.
  struct PackParameters {
    typename Access::Parameters weights, biases;
  };
  __device__ __forceinline__ PackParameters parameters(const Access& access, int k) const {
    return {access.weights(col_of(k), holds(k)), access.biases(col_of(k), holds(k))};
  }

  /// Weight and bias for pack k. Segments of other rows take the same; kKeep: soon.
  template <bool kKeep = false>
  __device__ __forceinline__ void load_parameters(const Access& access, int k, float (&w)[kSize],
                                                  float (&b)[kSize]) const {
    access.template load<kKeep>(col_of(k), holds(k), w, b);
  }

  /// Writes the outputs of pack k to the row that starts at element `row_start` of the output, or
  /// puts them in the pack's place for write_packs.
  __device__ __forceinline__ void write_pack(const Access& access, int k, std::int64_t row_start,
                                             const RowStatistics<float>& s, const float (&w)[kSize],
                                             const float (&b)[kSize], Hide hide) {
    float x[kSize];
    expand<Element>(packs_[k], x, hide);
    x_hat_of(x, access, s);
#pragma unroll
    for (int i = 0; i < kSize; ++i) x[i] = fma(x[i], w[i], b[i]);
    if constexpr (Access::kIsAligned) {
      if (holds(k)) access.store(row_start + col_of(k), x);
    } else {
      if (!access.is_wide()) {
        packs_[k] = compress<Element>(x);
      } else if (holds(k)) {
        access.store_wide(row_start + col_of(k), x);
      }
      // A pack is computed before the parameters of the next are loaded: a compiler that gathers
      // the loads of all packs runs out of registers.
      asm volatile("" ::: "memory");
    }
  }

  /// Writes what write_pack kept, if the row exists. All lanes of a wave must call it.
  __device__ __forceinline__ void write_packs(const Access& access, std::int64_t row_start,
                                              bool exists) const {
    if constexpr (!Access::kIsAligned) {
      if (!access.is_wide()) unaligned(access.output() + row_start).store(packs_, exists);
    }
  }

  __device__ __forceinline__ void write_tail(const Access& access, std::int64_t row_start,
                                             const RowStatistics<float>& s) const {
    if (!columns_.owns_tail()) return;
    const std::int64_t col = columns_.tail_col();
    float x_hat[] = {tail_};
    x_hat_of(x_hat, access, s);
    access.store_tail(row_start + col, col, x_hat[0]);
  }

  /// Writes all outputs of the segment. The weights and biases of kAhead packs are loaded before
  /// the first of them is written: the compiler moves no load over a store. kKeep: see
  /// load_parameters.
  template <int kAhead, bool kKeep = false>
  __device__ __forceinline__ void write(const Access& access, std::int64_t row_start,
                                        const RowStatistics<float>& s, Hide hide) {
    write_tail(access, row_start, s);
#pragma unroll
    for (int first = 0; first < kPacks; first += kAhead) {
      float w[kAhead][kSize], b[kAhead][kSize];
#pragma unroll
      for (int i = 0; i < kAhead && first + i < kPacks; ++i) {
        load_parameters<kKeep>(access, first + i, w[i], b[i]);
      }
#pragma unroll
      for (int i = 0; i < kAhead && first + i < kPacks; ++i) {
        write_pack(access, first + i, row_start, s, w[i], b[i], hide);
      }
    }
    write_packs(access, row_start, true);
  }

 private:
  template <class, class, int, int, int>
  friend class Segment;

  /// The segment's packs in a row of input or output, wherever it starts.
  template <class T>
  __device__ __forceinline__ UnalignedPacks<T, kLanes, kPacks, 1, true> unaligned(T* row) const {
    return {row, columns_.first_pack(), columns_.template packs<kPacks>()};
  }

  /// Replaces values by their x_hat. The branch is the same for all threads.
  template <int kCount>
  static __device__ __forceinline__ void x_hat_of(float (&x)[kCount], const Access& access,
                                                  const RowStatistics<float>& s) {
    if (access.is_fine()) {
#pragma unroll
      for (float& value : x) {
        value =
            normalise(value, s.shift, s.rstd, fine_offset(value, s.shift, s.rstd_tail, s.offset));
      }
    } else {
#pragma unroll
      for (float& value : x) value = normalise(value, s.shift, s.rstd, s.offset);
    }
  }

  __device__ bool is_sample_full() const { return columns_.template packs<kPacks>() >= kLanes; }
  __device__ bool holds(int k) const { return columns_.holds(k); }
  __device__ std::int64_t col_of(int k) const { return columns_.col_of(k); }

  LaneColumns<Element, Access::kHasTail, kLanes> columns_;
  PrivatePacks<kPacks, kSharedThreads> packs_;
  std::uint32_t edge_;  ///< see UnalignedPacks
  float tail_;          ///< the column after the last pack that this lane owns, or zero
};

}  // namespace simple_layernorm::gpu
