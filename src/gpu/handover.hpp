// How the blocks that share a row hand over their moments, without fences, flags or a grid barrier:
// a message is one or two words in global memory, and is there once it differs from "nothing yet".
// The workspace is filled with kNothing (all ones) before the launch: see launch_fill.
#pragma once

#include "gpu/segment_tree.hpp"

namespace simple_layernorm::gpu {

constexpr std::uint64_t kNothing = ~std::uint64_t{0};

/// Queues the filling of a workspace's messages with kNothing. A kernel rather than the runtime's
/// own filling, so that what is queued after it comes early: see launch.
void launch_fill(void* messages, std::size_t bytes, void* stream);

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
/// works on one row after the other. The first three are rows g, g + groups, g + 2 * groups; the
/// next ones its first block draws from a counter, so that a fast multiprocessor works on more of
/// them, and announces to the others with the row three before.
struct SplitWorkspace {
  static constexpr int kStaticRows = 3;

  std::uint64_t* drawn;  ///< one less than the rows drawn so far
  std::uint64_t* next;   ///< [rows] which row is the third after this one
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

  /// To be called by one thread of a group for each of its rows.
  __device__ void announce(std::int64_t row) const {
    const auto first = static_cast<std::uint64_t>(kStaticRows * groups);
    store_shared_word(&next[row], kStaticRows * groups < rows
                                      ? first + 1 + add_shared_word(drawn, 1)
                                      : std::uint64_t(rows));
  }

  /// What all blocks of a group learn about a row.
  struct Message {
    Moments<float> moments;
    std::int64_t third_row;  ///< after it
  };

  /// The words that make up a message; some of them may not have come yet.
  struct Words {
    std::uint64_t head_and_m2, tail_and_count, third_row;

    __device__ bool are_complete() const {
      return head_and_m2 != kNothing && tail_and_count != kNothing && third_row != kNothing;
    }
    __device__ CountedMoments moments() const {
      return {{low_of(head_and_m2), low_of(tail_and_count), high_of(head_and_m2)},
              high_of(tail_and_count)};
    }
  };

  /// By one thread of the group's block `piece`.
  __device__ void send(std::int64_t row, int attempt, int piece, const CountedMoments& own) const {
    gpu::send(&slots_of(row, attempt)[piece], own);
  }

  /// By a whole wave: waits for its messages of the pieces from `first` on. The lanes stay together
  /// until the last word has come: those that part take turns.
  __device__ __forceinline__ Words wait(std::int64_t row, int attempt, int first = 0) const {
    Words words;
    do {
      words = look(row, attempt, first);
    } while (any_lane(!words.are_complete()));
    return words;
  }

  /// What they say, once `first` of them have come; for the wave's first lane.
  __device__ __forceinline__ Message read(std::int64_t row, int attempt, const Words& words) const {
    CountedMoments sum = merge_lanes(words.moments(), min(pieces, kWave));
    if (pieces > kWave) {
#pragma unroll 1
      for (int first = kWave; first < pieces; first += kWave) {
        const CountedMoments part = merge_lanes(wait(row, attempt, first).moments(), kWave);
        if (threadIdx.x % kWave == first / kWave) sum = part;
      }
      sum = merge_lanes(sum, pieces / kWave);
    }
    return {sum.moments, static_cast<std::int64_t>(words.third_row)};
  }

 private:
  /// A message of each of the pieces from `first` on, as far as it has come.
  __device__ __forceinline__ Words look(std::int64_t row, int attempt, int first) const {
    const int piece = min(first + static_cast<int>(threadIdx.x % kWave), pieces - 1);
    const MomentsSlot* slot = slots_of(row, attempt) + piece;
    return {load_shared_word(&slot->head_and_m2), load_shared_word(&slot->tail_and_count),
            load_shared_word(&next[row])};
  }

  __device__ MomentsSlot* slots_of(std::int64_t row, int attempt) const {
    return moments + (row * kAttempts + attempt) * pieces;
  }
};

}  // namespace simple_layernorm::gpu
