// The backward pass over rows: one pass for the three averages of a row and one that makes
// gradients of them, adding its share of the parameter gradients to the sums of its block of rows.
// math/layer_norm.hpp has the formula.
#pragma once

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

  KERNEL_INLINE void finish(GradientSums<T> sums, std::int64_t cols) {
    average = gradient_averages(sums.x0, sums.h, sums.h_x0, T(1) / static_cast<T>(cols));
  }
};

template <class X, class T = Compute<X>>
KERNEL_INLINE GradientRow<X> gradient_row(const LayerNormBackward& a, std::int64_t row,
                                          bool needs_input) {
  GradientRow<X> r = {};
  r.g = static_cast<const X*>(a.grad_output) + row * a.grad_output_row_stride;
  if (a.grad_input != nullptr) r.grad_input = static_cast<X*>(a.grad_input) + row * a.cols;
  if (needs_input) {
    r.x = static_cast<const X*>(a.input) + row * a.row_stride;
    r.mean = static_cast<const T*>(a.mean)[row];
    r.rstd = static_cast<const T*>(a.rstd)[row];
  }
  return r;
}

/// Numbers of a tile of rows of one chunk that the first pass leaves for the second, if kKept<X>: a
/// third of a first-level cache. 16-bit backward at 4096 x 768 is 1.2 times as fast with them, and
/// as slow as without if there are twice as many.
constexpr std::int64_t kMostKeptGradients = 2048;
template <class T>
struct alignas(64) KeptGradients {
  T x0[kMostKeptGradients];
  T g[kMostKeptGradients];
};

/// Sums of a chunk. kInput: grad_input is wanted, so that h matters; its cache lines are fetched
/// meanwhile if `fetched`. kKeep: the numbers are left in `kept`, from `at` on.
template <bool kInput, bool kKeep, class X, class T = Compute<X>>
KERNEL_INLINE GradientSums<T> sums_of_chunk(const GradientRow<X>& r, Chunk chunk, const T* weight,
                                            bool fetched, KeptGradients<T>& kept, std::int64_t at) {
  using V = Vector<T>;
  V sum_x0(T(0));
  V sum_h(T(0));
  V sum_h_x0(T(0));
  const X* const x = r.x + chunk.begin;
  const X* const from = r.g + chunk.begin;
  for_vectors<T>(chunk.cols, [&](std::int64_t col, auto part) KERNEL_LAMBDA {
    const V x0 = keep<X>(normalise_stored(load(x + col, part), V(r.mean), V(r.rstd)), part);
    sum_x0 = sum_x0 + x0;
    if constexpr (kKeep) store(kept.x0 + at + col, x0, Whole{});
    if constexpr (kInput || kKeep) {
      const V g = load(from + col, part);
      if constexpr (kKeep) store(kept.g + at + col, g, Whole{});
      if constexpr (kInput) {
        if (fetched) prefetch_to_write(r.grad_input + chunk.begin + col);
        const V h = g * load(weight + col, Whole{});
        sum_h = sum_h + h;
        sum_h_x0 = fma(h, x0, sum_h_x0);
      }
    }
  });
  return {total(sum_x0), total(sum_h), total(sum_h_x0)};
}

/// Gradients of a chunk of some rows, kKeep: of numbers that were left in `kept`. weight_sums and
/// bias_sums are null if not wanted. Meanwhile the cache lines are fetched that lie next_g and
/// next_x further on.
template <bool kInput, bool kKeep, Store kStore, class X, class T = Compute<X>>
KERNEL_INLINE void apply_to_chunk(const GradientRow<X>* rows, std::int64_t count, Chunk chunk,
                                  const T* weight, T* weight_sums, T* bias_sums,
                                  std::int64_t next_g, std::int64_t next_x,
                                  const KeptGradients<T>& kept) {
  using V = Vector<T>;
  for_vectors<T>(chunk.cols, [&](std::int64_t i, auto part) KERNEL_LAMBDA {
    const std::int64_t col = chunk.begin + i;
    V w(T(0));
    V weight_sum(T(0));
    V bias_sum(T(0));
    if constexpr (kInput) w = load(weight + i, Whole{});
    if (weight_sums != nullptr) weight_sum = load(weight_sums + col, Whole{});
    if (bias_sums != nullptr) bias_sum = load(bias_sums + col, Whole{});
    for (std::int64_t row = 0; row < count; ++row) {
      const GradientRow<X>& r = rows[row];
      const std::int64_t at = row * padded_cols(chunk.cols) + i;
      const V g = kKeep ? load(kept.g + at, Whole{}) : load(r.g + col, part);
      prefetch_to_read(r.g + next_g + col);
      bias_sum = bias_sum + g;
      if (!kInput && weight_sums == nullptr) continue;
      prefetch_to_read(r.x + next_x + col);
      const V x_hat =
          kKeep ? load(kept.x0 + at, Whole{}) - V(r.average.x0)
                : normalise(load(r.x + col, part), V(r.mean), V(r.rstd), V(-r.average.x0));
      weight_sum = fma(g, x_hat, weight_sum);
      if constexpr (kInput) {
        store<kStore>(r.grad_input + col,
                      input_gradient(g * w, x_hat, V(r.average.h), V(r.average.h_x_hat), V(r.rstd)),
                      part);
      }
    }
    if (weight_sums != nullptr) store(weight_sums + col, weight_sum, Whole{});
    if (bias_sums != nullptr) store(bias_sums + col, bias_sum, Whole{});
  });
}

template <class T>
void clear(T* sums, Chunk chunk) {
  if (sums == nullptr) return;
  for_vectors<T>(chunk.cols, [&](std::int64_t col, auto) KERNEL_LAMBDA {
    store(sums + chunk.begin + col, Vector<T>(T(0)), Whole{});
  });
}

/// Rows that the second pass reads together, so that the sums of a column are loaded and stored
/// once for them: 8 narrow ones are 1.1 times as fast as 4 (65536 x 64), 8 of 768 columns are not.
/// Of kept rows, as many as there is room for.
constexpr int kMostGradientTileRows = 32;
constexpr std::int64_t kNarrowRow = 256;
/// Input and grad_output of a tile: in the first-level cache beside their sums and grad_input (1.05
/// times as fast in float32 at 4096 x 768 as in the second), or in the second-level cache.
constexpr std::int64_t kGradientTileBytes = 16384;
constexpr std::int64_t kLongGradientTileBytes = 524288;

template <class X>
KERNEL_INLINE std::int64_t gradient_tile_rows(std::int64_t cols) {
  const bool one_chunk = cols <= kChunkCols;
  const std::int64_t bytes = one_chunk ? kGradientTileBytes : kLongGradientTileBytes;
  const std::int64_t most = kKept<X> && one_chunk ? kMostKeptGradients / padded_cols(cols)
                            : cols <= kNarrowRow  ? 8
                                                  : 4;
  const std::int64_t fitting = bytes / (2 * cols * static_cast<std::int64_t>(sizeof(X)));
  const std::int64_t rows = fitting < most ? fitting : most;
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
  const std::int64_t tile = gradient_tile_rows<X>(cols);
  for (std::int64_t i = 0; i < chunks; ++i) {
    clear(weight_sums, chunk_of(cols, i));
    clear(bias_sums, chunk_of(cols, i));
  }

  Buffer<T> buffer;
  const T* weight = nullptr;
  const auto weight_of = [&](Chunk chunk) KERNEL_LAMBDA {
    if (kInput && (chunks > 1 || weight == nullptr)) {
      weight = parameter_of<X>(a.weight, a.weight_dtype, chunk, T(1), buffer).columns;
    }
    return weight;
  };
  const auto run_tiles = [&]<bool kKeep, Store kStore>() {
    KeptGradients<T> kept;
    for (; begin < end; begin += tile) {
      const std::int64_t count = end - begin < tile ? end - begin : tile;
      GradientRow<X> rows[kMostGradientTileRows];
      GradientSums<T> sums[kMostGradientTileRows];
      for (std::int64_t r = 0; r < count; ++r) rows[r] = gradient_row<X>(a, begin + r, needs_input);
      for (std::int64_t i = 0; needs_input && i < chunks; ++i) {
        const Chunk chunk = chunk_of(cols, i);
        const T* w = weight_of(chunk);
        for (std::int64_t r = 0; r < count; ++r) {
          const GradientSums<T> part = sums_of_chunk<kInput, kKeep>(
              rows[r], chunk, w, kStore != Store::streamed, kept, r * padded_cols(cols));
          sums[r] = i == 0 ? part : sums[r] + part;
        }
      }
      for (std::int64_t r = 0; needs_input && r < count; ++r) rows[r].finish(sums[r], cols);
      for (std::int64_t i = 0; i < chunks; ++i) {
        const Chunk chunk = chunk_of(cols, i);
        apply_to_chunk<kInput, kKeep, kStore>(rows, count, chunk, weight_of(chunk), weight_sums,
                                              bias_sums, tile * a.grad_output_row_stride,
                                              tile * a.row_stride, kept);
      }
    }
  };
  if (kKept<X> && needs_input && chunks == 1) {
    if (streamed)
      return run_tiles.template operator()<kKept<X>, Store::streamed>(), finish_streams();
    return run_tiles.template operator()<kKept<X>, Store::any>();
  }
  if (streamed) return run_tiles.template operator()<false, Store::streamed>(), finish_streams();
  run_tiles.template operator()<false, Store::any>();
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
  for (std::int64_t r = 0; r < count; ++r) rows[r] = gradient_row<X>(a, begin + r, needs_input);
  const auto weight_of = [&](Chunk chunk, Buffer<T>& buffer) {
    return parameter_of<X>(a.weight, a.weight_dtype, chunk, T(1), buffer).columns;
  };

  KeptGradients<T> none;
  GradientSums<T>* parts = static_cast<GradientSums<T>*>(chunk_sums);
  if (needs_input) {
    on_threads(threads, chunks, [&](std::int64_t i) {
      const Chunk chunk = chunk_of(a.cols, i);
      Buffer<T> buffer;
      const T* weight = weight_of(chunk, buffer);
      for (std::int64_t r = 0; r < count; ++r) {
        parts[r * chunks + i] =
            sums_of_chunk<kInput, false>(rows[r], chunk, weight, false, none, 0);
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
    constexpr std::int64_t kTogether = 4;
    for (std::int64_t r = 0; r < count; r += kTogether) {
      apply_to_chunk<kInput, false, Store::any>(
          rows + r, count - r < kTogether ? count - r : kTogether, chunk, weight, weight_sums,
          bias_sums, kTogether * a.grad_output_row_stride, kTogether * a.row_stride, none);
    }
  });
}

template <class X, class To, class T = Compute<X>>
void merge_chunk(const T* sums, std::int64_t blocks, std::int64_t cols, Chunk chunk, To* gradient) {
  for_vectors<T>(chunk.cols, [&](std::int64_t i, auto part) KERNEL_LAMBDA {
    const std::int64_t col = chunk.begin + i;
    Vector<T> sum(T(0));
    for (std::int64_t block = 0; block < blocks; ++block) {
      sum = sum + load(sums + block * padded_cols(cols) + col, Whole{});
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
