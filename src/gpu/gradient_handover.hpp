// How the blocks that share a row hand over its sums in the backward pass; see handover.hpp. Which
// rows a group works on is fixed: the sums of the parameter gradients must not depend on luck.
#pragma once

#include "gpu/handover.hpp"

namespace simple_layernorm::gpu {

/// The messages of a backward launch: three sums of a row's piece, see gradient_averages.
struct SumsSlot {
  std::uint64_t x0_and_h;
  std::uint64_t h_x0;
};

struct SumsExchange {
  SumsSlot* slots;  ///< [rows, pieces]
  int pieces;

  static std::size_t bytes(std::int64_t rows, int pieces) {
    return static_cast<std::size_t>(rows * pieces) * sizeof(SumsSlot);
  }

  __device__ void send(std::int64_t row, int piece, const float (&own)[3]) const {
    SumsSlot* slot = &slots[row * pieces + piece];
    store_shared_word(&slot->x0_and_h, word_of(own[0], own[1]));
    store_shared_word(&slot->h_x0, word_of(own[2], 0.0f));
  }

  /// The words of a message; one of them may not have come yet.
  struct Words {
    std::uint64_t x0_and_h, h_x0;

    __device__ bool are_complete() const { return x0_and_h != kNothing && h_x0 != kNothing; }
  };

  /// A message of each of the pieces from `first` on, as far as it has come. To be called by the
  /// first wave of a block.
  __device__ __forceinline__ Words look(std::int64_t row, int first = 0) const {
    const int piece = first + static_cast<int>(threadIdx.x);
    const SumsSlot* slot = &slots[row * pieces + min(piece, pieces - 1)];
    return {load_shared_word(&slot->x0_and_h), load_shared_word(&slot->h_x0)};
  }

  /// The sums of the whole row, given a first look. Its lanes stay together, those beyond the last
  /// piece wait for it too: lanes that part take turns.
  __device__ __forceinline__ void receive(std::int64_t row, Words words, float (&whole)[3]) const {
#pragma unroll
    for (float& sum : whole) sum = 0.0f;
    for (int first = 0; first < pieces; first += kWave) {
      if (first > 0) words = look(row, first);
      while (any_lane(!words.are_complete())) words = look(row, first);
      const bool is_piece = first + static_cast<int>(threadIdx.x) < pieces;
      whole[0] += is_piece ? low_of(words.x0_and_h) : 0.0f;
      whole[1] += is_piece ? high_of(words.x0_and_h) : 0.0f;
      whole[2] += is_piece ? low_of(words.h_x0) : 0.0f;
    }
#pragma unroll
    for (float& sum : whole) sum = wave_sum(sum);
  }
};

}  // namespace simple_layernorm::gpu
