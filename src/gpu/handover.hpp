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

/// The words of a message about a piece of a row: its moments. Some may not have come yet.
struct MomentsSlot {
  std::uint64_t head_and_m2;
  std::uint64_t tail_and_count;

  __device__ bool is_complete() const {
    return head_and_m2 != kNothing && tail_and_count != kNothing;
  }
  __device__ CountedMoments moments() const {
    return {{low_of(head_and_m2), low_of(tail_and_count), high_of(head_and_m2)},
            high_of(tail_and_count)};
  }
};

/// The messages about all pieces of all rows. A row has a power of two of pieces.
struct PieceMessages {
  MomentsSlot* slots;  ///< [rows, attempts, pieces]
  int pieces;

  static std::size_t bytes(std::int64_t rows, int pieces) {
    return sizeof(MomentsSlot) * static_cast<std::size_t>(rows * kAttempts * pieces);
  }

  /// By one thread of the block that has the piece.
  __device__ void send(std::int64_t row, int attempt, int piece, const CountedMoments& own) const {
    MomentsSlot* const slot = slots_of(row, attempt) + piece;
    store_shared_word(&slot->head_and_m2, word_of(own.moments.head, own.moments.m2));
    store_shared_word(&slot->tail_and_count, word_of(own.moments.tail, own.count));
  }

  /// By a whole wave: a message for each lane, of the pieces from `first` on, as far as they have
  /// come.
  __device__ __forceinline__ MomentsSlot look(std::int64_t row, int attempt, int first) const {
    const int piece = min(first + static_cast<int>(threadIdx.x % kWave), pieces - 1);
    const MomentsSlot* const slot = slots_of(row, attempt) + piece;
    return {load_shared_word(&slot->head_and_m2), load_shared_word(&slot->tail_and_count)};
  }

  /// By a whole wave: the moments of the pieces that its lanes look for, once these have come; for
  /// its first lane, or if they are kWave pieces for all. The lanes stay together until the last
  /// message has come: those that part take turns.
  __device__ __forceinline__ CountedMoments receive(std::int64_t row, int attempt,
                                                    int first) const {
    MomentsSlot message;
    do {
      message = look(row, attempt, first);
    } while (any_lane(!message.is_complete()));
    return merge_lanes(message.moments(), min(pieces, kWave));
  }

 private:
  __device__ MomentsSlot* slots_of(std::int64_t row, int attempt) const {
    return slots + (row * kAttempts + attempt) * pieces;
  }
};

/// The messages of a launch in which groups work on many rows. Blocks g * pieces ... g * pieces +
/// pieces - 1 are group g; a group works on one row after the other. The first three are rows g, g
/// + groups, g + 2 * groups; the next ones its first block draws from a counter, so that a fast
/// multiprocessor works on more of them, and announces to the others with the row three before.
struct SplitWorkspace {
  static constexpr int kStaticRows = 3;

  std::uint64_t* drawn;  ///< one less than the rows drawn so far
  std::uint64_t* next;   ///< [rows] which row is the third after this one
  PieceMessages moments;
  std::int64_t rows;
  std::int64_t groups;

  static std::size_t bytes(std::int64_t rows, int pieces) {
    return sizeof(std::uint64_t) * static_cast<std::size_t>(1 + rows) +
           PieceMessages::bytes(rows, pieces);
  }

  SplitWorkspace(void* memory, std::int64_t rows, int pieces, std::int64_t groups)
      : drawn(static_cast<std::uint64_t*>(memory)),
        next(drawn + 1),
        moments{reinterpret_cast<MomentsSlot*>(next + rows), pieces},
        rows(rows),
        groups(groups) {}

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
    MomentsSlot moments;
    std::uint64_t third_row;
  };

  /// By a whole wave: waits for the messages that its lanes have of the first pieces.
  __device__ __forceinline__ Words wait(std::int64_t row, int attempt) const {
    Words words;
    do {
      words = {moments.look(row, attempt, 0), load_shared_word(&next[row])};
    } while (any_lane(!words.moments.is_complete() || words.third_row == kNothing));
    return words;
  }

  /// What they and those of the other pieces say; for the wave's first lane.
  __device__ __forceinline__ Message read(std::int64_t row, int attempt, const Words& words) const {
    CountedMoments sum = merge_lanes(words.moments.moments(), min(moments.pieces, kWave));
    if (moments.pieces > kWave) {
#pragma unroll 1
      for (int first = kWave; first < moments.pieces; first += kWave) {
        const CountedMoments part = moments.receive(row, attempt, first);
        if (threadIdx.x % kWave == first / kWave) sum = part;
      }
      sum = merge_lanes(sum, moments.pieces / kWave);
    }
    return {sum.moments, static_cast<std::int64_t>(words.third_row)};
  }
};

}  // namespace simple_layernorm::gpu
