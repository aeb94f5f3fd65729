// How the blocks that share a row hand over their moments, without fences, flags or a grid barrier:
// a message is one or two words in global memory, and is there once it differs from "nothing yet".
// The workspace is filled with kNothing (all ones) before the launch.
#pragma once

#include "gpu/segment_tree.hpp"

namespace simple_layernorm::gpu {

constexpr std::uint64_t kNothing = ~std::uint64_t{0};

/// Two floats as one word. Their NaNs become the plain one, so that no message looks like kNothing.
__device__ inline std::uint64_t word_of(float low, float high) {
  const auto bits = [](float value) {
    return std::uint64_t{value == value ? bits_of(value) : 0x7fc00000u};
  };
  return bits(low) | bits(high) << 32;
}
__device__ inline float low_of(std::uint64_t word) {
  return float_of(static_cast<std::uint32_t>(word));
}
__device__ inline float high_of(std::uint64_t word) {
  return float_of(static_cast<std::uint32_t>(word >> 32));
}

/// A message about some pieces of a row: their moments.
struct MomentsSlot {
  std::uint64_t head_and_m2;
  std::uint64_t tail_and_count;
};

__device__ inline void send(MomentsSlot* slot, const CountedMoments& own) {
  store_shared_word(&slot->head_and_m2, word_of(own.moments.head, own.moments.m2));
  store_shared_word(&slot->tail_and_count, word_of(own.moments.tail, own.count));
}

/// The messages of a launch. Blocks g * pieces ... g * pieces + pieces - 1 are group g; a group
/// works on one row after the other. The first is row g, the next ones its first block draws from a
/// counter, so that a fast multiprocessor works on more of them, and announces to the others.
struct SplitWorkspace {
  std::uint64_t* drawn;  ///< one less than the rows drawn so far
  std::uint64_t* next;   ///< [rows] which row follows after this one
  MomentsSlot* moments;  ///< [rows, attempts, pieces]
  std::int64_t rows;
  std::int64_t groups;
  int pieces;

  static std::size_t bytes(std::int64_t rows, int pieces) {
    return static_cast<std::size_t>(sizeof(std::uint64_t) * (1 + rows) +
                                    sizeof(MomentsSlot) * rows * kAttempts * pieces);
  }

  SplitWorkspace(void* memory, std::int64_t rows, int pieces, std::int64_t groups)
      : drawn(static_cast<std::uint64_t*>(memory)),
        next(drawn + 1),
        moments(reinterpret_cast<MomentsSlot*>(next + rows)),
        rows(rows),
        groups(groups),
        pieces(pieces) {}

  /// To be called by one thread of a group, before the group exchanges anything about `row`.
  __device__ void announce_next(std::int64_t row) const {
    store_shared_word(&next[row],
                      groups < rows ? groups + 1 + add_shared_word(drawn, 1) : std::uint64_t(rows));
  }

  /// What all blocks of the group learn from an exchange.
  struct Message {
    Moments<float> moments;
    std::int64_t next_row;
  };

  /// Gives away the moments that the group's block `piece` has of `row` and returns those of the
  /// whole row. `message` is shared memory that no thread still reads. Costs one barrier.
  __device__ Message exchange(const CountedMoments& own, int piece, std::int64_t row, int attempt,
                              Message* message) const {
    if (threadIdx.x < kWave) {
      MomentsSlot* slots = moments + (row * kAttempts + attempt) * pieces;
      if (threadIdx.x == 0) send(&slots[piece], own);
      const Message whole = receive_all(slots, &next[row]);
      if (threadIdx.x == 0) *message = whole;
    }
    __syncthreads();
    return *message;
  }

 private:
  /// By a whole wave: each lane takes a power-of-two run of pieces.
  __device__ Message receive_all(const MomentsSlot* slots, const std::uint64_t* next_slot) const {
    const int lanes = pieces < kWave ? pieces : kWave;
    const int run = pieces / lanes;
    const MomentsSlot* own = slots + threadIdx.x % lanes * run;
    std::uint64_t next_row = 0;
    CountedMoments sum = receive(own, next_slot, next_row);
    if (run == 2) {
      sum = merge(sum, receive(own + 1, next_slot, next_row));
    } else if (run == 4) {
      const CountedMoments second = receive(own + 1, next_slot, next_row);
      const CountedMoments third = receive(own + 2, next_slot, next_row);
      sum = merge(merge(sum, second), merge(third, receive(own + 3, next_slot, next_row)));
    }
    return {merge_lanes(sum, lanes).moments, static_cast<std::int64_t>(next_row)};
  }

  /// The message in each lane's own slot, and the next row. The lanes stay together until the last
  /// word has come.
  static __device__ CountedMoments receive(const MomentsSlot* slot, const std::uint64_t* next_slot,
                                           std::uint64_t& next_row) {
    std::uint64_t head_and_m2, tail_and_count;
    do {
      head_and_m2 = load_shared_word(&slot->head_and_m2);
      tail_and_count = load_shared_word(&slot->tail_and_count);
      next_row = load_shared_word(next_slot);
    } while (
        any_lane(head_and_m2 == kNothing || tail_and_count == kNothing || next_row == kNothing));
    return {{low_of(head_and_m2), low_of(tail_and_count), high_of(head_and_m2)},
            high_of(tail_and_count)};
  }
};

}  // namespace simple_layernorm::gpu
