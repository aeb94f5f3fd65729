// The backward pass over rows: one pass for the three averages of a row and one that makes
// gradients of them, adding its share of the parameter gradients to the sums of its block of rows.
// The first pass over one row runs together with the second over another. math/layer_norm.hpp has
// the formula.
#pragma once

#include <cstddef>

#include "cpu/columns.hpp"
#include "math/layer_norm.hpp"

namespace simple_layernorm::cpu {
namespace {

/// Sums over columns of a row, which its averages are made of.
template <class T>
struct GradientSums {
  T x0;
  T h;
  T h_x0;

  KERNEL_INLINE GradientSums operator+(GradientSums other) const {
    return {x0 + other.x0, h + other.h, h_x0 + other.h_x0};
  }
};

template <class X, class T = Compute<X>>
struct GradientRow {
  const X* g;
  const X* x;
  X* grad_input;
  T mean;
  T rstd;
  GradientAverages<T> average;

  /// Writes every member where it stays. A copy of the whole would wait for the stores of its
  /// parts: 65536 x 64 takes 0.78 (16 bits) to 0.91 of the time so (EPYC).
  KERNEL_INLINE void start(const LayerNormBackward& a, std::int64_t row, bool needs_input) {
    g = static_cast<const X*>(a.grad_output) + row * a.grad_output_row_stride;
    grad_input = a.grad_input != nullptr ? static_cast<X*>(a.grad_input) + row * a.cols : nullptr;
    if (!needs_input) return;
    x = static_cast<const X*>(a.input) + row * a.row_stride;
    // Not with_one_nan(): GCC 12 then keeps the sums of the float32 loop in memory, 1.1 times the
    // time.
    const T its_mean = static_cast<const T*>(a.mean)[row];
    const T its_rstd = static_cast<const T*>(a.rstd)[row];
    mean = its_mean == its_mean ? its_mean : T(NAN);
    rstd = its_rstd == its_rstd ? its_rstd : T(NAN);
  }

  KERNEL_INLINE void finish(GradientSums<T> sums, std::int64_t cols) {
    average = gradient_averages(sums.x0, sums.h, sums.h_x0, T(1) / static_cast<T>(cols));
  }

  /// One NaN for all columns of a row that has one, so that its bits do not tell which way it went.
  KERNEL_INLINE void settle_nan(Chunk chunk) const {
    const bool is_nan =
        average.x0 != average.x0 || average.h != average.h || average.h_x_hat != average.h_x_hat;
    if (is_nan && grad_input != nullptr) [[unlikely]]
      fill_with_nan(chunk);
  }
  __attribute__((noinline, cold)) void fill_with_nan(Chunk chunk) const {
    finish_streams();
    for_vectors<T>(chunk.cols, [&](std::int64_t i, auto part) KERNEL_LAMBDA {
      store(grad_input + chunk.begin + i, Vector<T>(T(NAN)), part);
    });
  }
};

/// Numbers that the first pass leaves of a tile of rows of one chunk for the second.
/// With twice as many, 16-bit backward at 4096 x 768 takes 1.3 times as long: two tiles' are a
/// third of a first-level cache.
constexpr std::int64_t kMostKeptGradients = 1024;
template <class T>
struct alignas(64) KeptGradients {
  T centred[kMostKeptGradients + kApart / sizeof(T)];  ///< x - mean
  T g[kMostKeptGradients + kApart / sizeof(T)];
};

static_assert(sizeof(KeptGradients<float>) % 4096 >= kApart &&
              offsetof(KeptGradients<float>, g) % 4096 >= kApart);

/// How much further on the columns lie that a pass fetches.
struct Ahead {
  std::int64_t g;
  std::int64_t x;
  std::int64_t grad_input;
};

/// The first pass over a chunk of a row, if kSum, and the second over one of each of `count` rows
/// whose averages are known. In one loop, the arithmetic of one pass overlaps with the traffic of
/// the other: float32 at 1024 x 16384 takes 0.8 of the time of two loops.
/// kInput: grad_input is wanted, so that h matters. kKeep: the first pass leaves its numbers in
/// `left`, from `at` on, and the second finds its in `found`, from there on too. weight_sums and
/// bias_sums are null if not wanted.
template <bool kSum, bool kInput, bool kKeep, Store kStore, class X, class T = Compute<X>>
KERNEL_INLINE GradientSums<T> gradient_pass_over_chunk(
    const GradientRow<X>* summed, const GradientRow<X>* applied, std::int64_t count, Chunk chunk,
    const T* weight, T* weight_sums, T* bias_sums, Ahead ahead, KeptGradients<T>& left,
    const KeptGradients<T>& found, std::int64_t at) {
  using V = Vector<T>;
  Sum<T> sum_x0;
  Sum<T> sum_h;
  Sum<T> sum_h_x0;
  for_vectors<T>(chunk.cols, [&](std::int64_t i, auto part) KERNEL_LAMBDA {
    const std::int64_t col = chunk.begin + i;
    V w(T(0));
    if constexpr (kInput) w = load(weight + i, whole(part));
    if constexpr (kSum) {
      const GradientRow<X>& r = *summed;
      prefetch_to_read<2>(r.x + ahead.x + col, part);
      prefetch_to_read<2>(r.g + ahead.g + col, part);
      const V x0 = keep<X>(normalise_stored(load(r.x + col, part), V(r.mean), V(r.rstd)), part);
      if constexpr (kKeep) {
        store(left.centred + at + i, load(r.x + col, part) - V(r.mean), whole(part));
      }
      sum_x0[part] = sum_x0[part] + x0;
      if constexpr (kInput || kKeep) {
        const V g = load(r.g + col, part);
        if constexpr (kKeep) store(left.g + at + i, g, whole(part));
        const V h = g * w;
        sum_h[part] = sum_h[part] + h;
        sum_h_x0[part] = fma(h, x0, sum_h_x0[part]);
      }
    }
    if (count == 0) return;
    V weight_sum(T(0));
    V bias_sum(T(0));
    if (weight_sums != nullptr) weight_sum = load(weight_sums + col, whole(part));
    if (bias_sums != nullptr) bias_sum = load(bias_sums + col, whole(part));
    for (std::int64_t row = 0; row < count; ++row) {
      const GradientRow<X>& r = applied[row];
      const std::int64_t from = at + row * padded_cols(chunk.cols) + i;
      const V g = kKeep ? load(found.g + from, whole(part)) : load(r.g + col, part);
      bias_sum = bias_sum + g;
      if (!kInput && weight_sums == nullptr) continue;
      const V x_hat =
          kKeep ? normalise(load(found.centred + from, whole(part)), V(T(0)), V(r.rstd),
                            V(-r.average.x0))
                : normalise(load(r.x + col, part), V(r.mean), V(r.rstd), V(-r.average.x0));
      weight_sum = fma(g, x_hat, weight_sum);
      if constexpr (kInput) {
        if (kStore != Store::streamed)
          prefetch_to_write(r.grad_input + ahead.grad_input + col, part);
        store<kStore>(r.grad_input + col,
                      input_gradient(g * w, x_hat, V(r.average.h), V(r.average.h_x_hat), V(r.rstd)),
                      part);
      }
    }
    if (weight_sums != nullptr) store(weight_sums + col, weight_sum, whole(part));
    if (bias_sums != nullptr) store(bias_sums + col, bias_sum, whole(part));
  });
  return {sum_x0.total(), sum_h.total(), sum_h_x0.total()};
}

template <class T>
void clear(T* sums, Chunk chunk) {
  if (sums == nullptr) return;
  for_vectors<T>(chunk.cols, [&](std::int64_t col, auto part) KERNEL_LAMBDA {
    store(sums + chunk.begin + col, Vector<T>(T(0)), whole(part));
  });
}

/// Rows whose sums are taken before they are applied, so that a row's averages are ready when they
/// are needed, and a chunk's weight is converted once for all.
constexpr std::int64_t kMostGradientTileRows = 32;
/// Input and grad_output of a tile of longer rows than a chunk: in the second-level cache.
constexpr std::int64_t kGradientTileBytes = 131072;
/// Rows of so few columns take one pass at a time, and the second reads a tile's rows together, so
/// that the sums of a column are loaded and stored once: 65536 x 64 takes 0.85 of the time so, and
/// 16 bits that are not kept 0.85 to 0.95 at 128 x 1024 and 4096 x 1000. With 2048 columns they
/// take up to 1.07 times as long, float32 rows of 128 and 256 columns 1.15 times (EPYC).
template <class X>
constexpr std::int64_t kNarrowGradientRow = sizeof(X) > 2 ? 64
                                            : kKept<X>    ? 256
                                                          : 1024;
/// Elements between fetching a line into the second-level cache and using it, in rows of one chunk.
/// Into the first-level cache, where the tiles' numbers are, 16 bits take 1.2 times as long.
constexpr std::int64_t kGradientReadAhead = 4096;

template <class X, bool kKeep>
KERNEL_INLINE std::int64_t gradient_tile_rows(std::int64_t cols) {
  constexpr std::int64_t kBytes = sizeof(X);
  const std::int64_t rows = cols > kChunkCols ? kGradientTileBytes / (2 * cols * kBytes)
                            : !kKeep          ? (cols <= kNarrowGradientRow<X> ? 8 : 2)
                                              : kMostKeptGradients / padded_cols(cols);
  return rows < 1 ? 1 : rows < kMostGradientTileRows ? rows : kMostGradientTileRows;
}

template <class X, bool kInput>
void backward_rows(const LayerNormBackward& a, std::int64_t begin, std::int64_t end,
                   PartialSums partial, bool streamed) {
  using T = Compute<X>;
  T* const weight_sums = static_cast<T*>(partial.weight);
  T* const bias_sums = static_cast<T*>(partial.bias);
  const bool needs_input = kInput || weight_sums != nullptr;
  const std::int64_t cols = a.cols;
  const std::int64_t chunks = chunks_in(cols);
  for (std::int64_t i = 0; i < chunks; ++i) {
    clear(weight_sums, chunk_of(cols, i));
    clear(bias_sums, chunk_of(cols, i));
  }

  const auto run_tiles = [&]<bool kKeep, Store kStore>() {
    const std::int64_t tile = gradient_tile_rows<X, kKeep>(cols);
    const std::int64_t rows_ahead = kGradientReadAhead / cols;
    // What a tile's first pass reads and its second writes is fetched while the one before takes
    // the same pass: with kWriteAhead, 16 bits at 4096 x 768 take 1.08 to 1.2 times as long (EPYC).
    const Ahead tile_ahead{tile * a.grad_output_row_stride, tile * a.row_stride,
                           kKeep ? kWriteAhead : tile * cols};
    const bool together = needs_input && cols > kNarrowGradientRow<X>;
    GradientRow<X> rows[2][kMostGradientTileRows];
    GradientSums<T> sums[kMostGradientTileRows];
    KeptGradients<T> kept[2];
    Buffer<T> buffer;
    const T* weight = nullptr;
    const auto pass = [&]<bool kSum>(const GradientRow<X>* summed, const GradientRow<X>* applied,
                                     std::int64_t count, Chunk chunk, Ahead ahead,
                                     KeptGradients<T>& left, const KeptGradients<T>& found,
                                     std::int64_t at) KERNEL_LAMBDA {
      return gradient_pass_over_chunk<kSum, kInput, kKeep, kStore>(
          summed, applied, count, chunk, weight, weight_sums, bias_sums, ahead, left, found, at);
    };
    std::int64_t applied = 0;  // rows of `now`, the tile before
    for (int side = 0; begin < end || applied > 0; begin += tile, side ^= together) {
      const std::int64_t summed = end - begin >= tile ? tile : end > begin ? end - begin : 0;
      GradientRow<X>* const next = rows[side];
      const GradientRow<X>* const now = rows[side ^ 1];
      KeptGradients<T>& left = kept[side];
      const KeptGradients<T>& found = kept[side ^ 1];
      for (std::int64_t r = 0; r < summed; ++r) next[r].start(a, begin + r, needs_input);
      for (std::int64_t i = 0; i < chunks; ++i) {
        const Chunk chunk = chunk_of(cols, i);
        if (kInput && (chunks > 1 || weight == nullptr)) {
          weight = parameter_of<X>(a.weight, a.weight_dtype, chunk, T(1), buffer);
        }
        const auto ahead_of = [&](std::int64_t r) KERNEL_LAMBDA {
          const auto further = [&](std::int64_t stride) KERNEL_LAMBDA {
            if (chunks == 1) return rows_ahead * stride;
            if (r + 1 < tile) return stride;
            return i + 1 < chunks ? kChunkCols - r * stride : stride - chunk.begin;
          };
          return Ahead{further(a.grad_output_row_stride), further(a.row_stride),
                       chunks == 1 ? kWriteAhead : further(cols)};
        };
        for (std::int64_t r = 0; needs_input && !together && r < summed; ++r) {
          next[r].finish(pass.template operator()<true>(next + r, next, 0, chunk, tile_ahead, left,
                                                        left, r * padded_cols(cols)),
                         cols);
        }
        for (std::int64_t r = 0; together && r < summed; ++r) {
          const std::int64_t at = r * padded_cols(cols);
          const GradientSums<T> part =
              r < applied ? pass.template operator()<true>(next + r, now + r, 1, chunk, ahead_of(r),
                                                           left, found, at)
                          : pass.template operator()<true>(next + r, now, 0, chunk, ahead_of(r),
                                                           left, found, at);
          sums[r] = i == 0 ? part : sums[r] + part;
          if (i + 1 == chunks) next[r].finish(sums[r], cols);
        }
        if (!together) {
          pass.template operator()<false>(next, next, summed, chunk, tile_ahead, left, left, 0);
        } else if (summed < applied) {
          pass.template operator()<false>(next, now + summed, applied - summed, chunk,
                                          ahead_of(summed), left, found,
                                          summed * padded_cols(cols));
        }
      }
      for (std::int64_t r = 0; r < (together ? applied : summed); ++r) {
        (together ? now : next)[r].settle_nan({0, cols});
      }
      applied = together ? summed : 0;
    }
  };
  if constexpr (kInput) {
    // Only whole lines: two stores to a line, apart, take up to twice the time of cached ones
    // (AVX2).
    if (streamed && kRegisterBytes == 64) {
      run_tiles.template operator()<false, Store::streamed>();
      return finish_streams();
    }
    if (kKept<X> && cols <= kMostKeptGradients) {
      return run_tiles.template operator()<kKept<X>, Store::cached>();
    }
  }
  run_tiles.template operator()<false, Store::cached>();
}

/// The sums of all chunks of all rows, then the gradients: two rounds of tasks, a task per chunk,
/// which reads its weight once for all rows.
template <class X, bool kInput>
void backward_rows_shared(const LayerNormBackward& a, std::int64_t begin, std::int64_t end,
                          PartialSums partial, void* chunk_sums, const ParallelFor& threads) {
  using T = Compute<X>;
  static_assert(sizeof(GradientSums<T>) <= kChunkSumsBytes);
  T* const weight_sums = static_cast<T*>(partial.weight);
  T* const bias_sums = static_cast<T*>(partial.bias);
  const bool needs_input = kInput || weight_sums != nullptr;
  const std::int64_t chunks = chunks_in(a.cols);
  const std::int64_t count = end - begin;
  GradientRow<X> rows[kMostSharedRows];
  for (std::int64_t r = 0; r < count; ++r) rows[r].start(a, begin + r, needs_input);
  const auto weight_of = [&](Chunk chunk, Buffer<T>& buffer) {
    return parameter_of<X>(a.weight, a.weight_dtype, chunk, T(1), buffer);
  };

  const Ahead next_row{a.grad_output_row_stride, a.row_stride, a.cols};
  KeptGradients<T> none;
  GradientSums<T>* parts = static_cast<GradientSums<T>*>(chunk_sums);
  if (needs_input) {
    on_threads(threads, chunks, [&](std::int64_t i) {
      const Chunk chunk = chunk_of(a.cols, i);
      Buffer<T> buffer;
      const T* weight = weight_of(chunk, buffer);
      for (std::int64_t r = 0; r < count; ++r) {
        parts[r * chunks + i] = gradient_pass_over_chunk<true, kInput, false, Store::cached>(
            rows + r, rows, 0, chunk, weight, weight_sums, bias_sums, next_row, none, none, 0);
      }
    });
    for (std::int64_t r = 0; r < count; ++r) {
      GradientSums<T> sums = parts[r * chunks];
      for (std::int64_t i = 1; i < chunks; ++i) sums = sums + parts[r * chunks + i];
      rows[r].finish(sums, a.cols);
    }
  }
  on_threads(threads, chunks, [&](std::int64_t i) {
    const Chunk chunk = chunk_of(a.cols, i);
    Buffer<T> buffer;
    const T* weight = weight_of(chunk, buffer);
    clear(weight_sums, chunk);
    clear(bias_sums, chunk);
    for (std::int64_t r = 0; r < count; ++r) {
      gradient_pass_over_chunk<false, kInput, false, Store::cached>(
          rows, rows + r, 1, chunk, weight, weight_sums, bias_sums, next_row, none, none, 0);
      rows[r].settle_nan(chunk);
    }
  });
}

template <class X, class To, class T = Compute<X>>
void merge_chunk(const T* sums, std::int64_t blocks, std::int64_t cols, Chunk chunk, To* gradient) {
  for_vectors<T>(chunk.cols, [&](std::int64_t i, auto part) KERNEL_LAMBDA {
    const std::int64_t col = chunk.begin + i;
    Vector<T> sum(T(0));
    for (std::int64_t block = 0; block < blocks; ++block) {
      sum = sum + load(sums + block * padded_cols(cols) + col, whole(part));
    }
    store_from<X>(gradient + col, sum, part);
  });
}

void backward(const LayerNormBackward& a, std::int64_t begin, std::int64_t end, PartialSums sums,
              bool streamed) {
  with_element(a.input_dtype, [&](auto x) {
    using X = decltype(x);
    if (a.grad_input != nullptr) return backward_rows<X, true>(a, begin, end, sums, streamed);
    backward_rows<X, false>(a, begin, end, sums, false);
  });
}

void backward_shared(const LayerNormBackward& a, std::int64_t begin, std::int64_t end,
                     PartialSums sums, void* chunk_sums, const ParallelFor& threads) {
  with_element(a.input_dtype, [&](auto x) {
    using X = decltype(x);
    if (a.grad_input != nullptr) {
      return backward_rows_shared<X, true>(a, begin, end, sums, chunk_sums, threads);
    }
    backward_rows_shared<X, false>(a, begin, end, sums, chunk_sums, threads);
  });
}

void merge(const LayerNormBackward& a, PartialSums sums, std::int64_t blocks, std::int64_t index) {
  const Chunk chunk = chunk_of(a.cols, index);
  with_element(a.input_dtype, [&](auto x) {
    using X = decltype(x);
    using T = Compute<X>;
    const auto merge_into = [&](void* gradient, Dtype dtype, const void* partial) {
      const T* from = static_cast<const T*>(partial);
      if (gradient == nullptr) return;
      if (sizeof(X) == 2 && dtype == Dtype::float32) {
        return merge_chunk<X>(from, blocks, a.cols, chunk, static_cast<T*>(gradient));
      }
      merge_chunk<X>(from, blocks, a.cols, chunk, static_cast<X*>(gradient));
    };
    merge_into(a.grad_weight, a.weight_dtype, sums.weight);
    merge_into(a.grad_bias, a.bias_dtype, sums.bias);
  });
}

}  // namespace
}  // namespace simple_layernorm::cpu
