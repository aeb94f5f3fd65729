// The forward pass over rows: the statistics of a tile of rows, then a pass that applies them while
// the rows are still in cache. math/layer_norm.hpp has the formula.
#pragma once

#include "cpu/forward_statistics.hpp"

namespace simple_layernorm::cpu {
namespace {

/// Outputs of some columns; Store::any also for rows that are scaled. Meanwhile the cache lines at
/// `next` are fetched.
template <Store kStore, class X, class From, class T = Compute<X>>
KERNEL_INLINE void apply_to_chunk(const From* x, X* y, const T* weight, const T* bias,
                                  std::int64_t cols, RowStatistics<T> s, const X* next) {
  using V = Vector<T>;
  for_vectors<T>(cols, [&](std::int64_t col, auto part) KERNEL_LAMBDA {
    prefetch_to_read(next + col);
    V v = load_columns<X>(x + col, part);
    if constexpr (kStore == Store::any) v = v * V(s.scale);
    V offset(s.offset);
    if constexpr (sizeof(X) > 2) offset = fine_offset(v, V(s.shift), V(s.rstd_tail), offset);
    const V x_hat = normalise(v, V(s.shift), V(s.rstd), offset);
    store<kStore>(y + col, fma(x_hat, load(weight + col, Whole{}), load(bias + col, Whole{})),
                  part);
  });
}
template <class X, class T = Compute<X>>
__attribute__((noinline, cold)) void apply_to_special_chunk(const X* x, X* y, const T* weight,
                                                            const T* bias, std::int64_t cols,
                                                            RowStatistics<T> s) {
  apply_to_chunk<Store::any>(x, y, weight, bias, cols, s, x);
}

/// Whether the rows of these statistics need no scale and give finite x_hat.
template <class T>
KERNEL_INLINE bool is_plain(RowStatistics<T> s) {
  return s.scale == T(1) && s.rstd <= Limits<T>::largest && s.offset - s.offset == T(0);
}

template <class T>
KERNEL_INLINE void keep_statistics(const LayerNormForward& a, std::int64_t row,
                                   RowStatistics<T> s) {
  if (a.mean != nullptr) static_cast<T*>(a.mean)[row] = s.unscaled_mean();
  if (a.rstd != nullptr) static_cast<T*>(a.rstd)[row] = s.unscaled_rstd();
}

template <class X>
void forward_rows(const LayerNormForward& a, std::int64_t begin, std::int64_t end, bool streamed) {
  using T = Compute<X>;
  const std::int64_t cols = a.cols;
  const std::int64_t row_stride = a.row_stride;
  const T eps = static_cast<T>(a.eps);
  const std::int64_t chunks = chunks_in(cols);
  const std::int64_t tile = tile_rows<X>(cols);

  Buffer<T> weight_buffer;
  Buffer<T> bias_buffer;
  Kept<T> kept;
  Parameter<T> weight = {};
  Parameter<T> bias = {};
  for (; begin < end; begin += tile) {
    const std::int64_t rows = end - begin < tile ? end - begin : tile;
    const X* x = static_cast<const X*>(a.input) + begin * row_stride;
    X* y = static_cast<X*>(a.output) + begin * cols;

    RowStatistics<T> statistics[kMostTileRows<T>];
    statistics_of_tile(Rows<X>{x, row_stride, streamed ? nullptr : y, rows, cols}, eps, kept,
                       statistics);
    for (std::int64_t r = 0; r < rows; ++r) keep_statistics(a, begin + r, statistics[r]);

    for (std::int64_t i = 0; i < chunks; ++i) {
      const Chunk chunk = chunk_of(cols, i);
      if (chunks > 1 || weight.columns == nullptr) {
        weight = parameter_of<X>(a.weight, a.weight_dtype, chunk, T(1), weight_buffer);
        bias = parameter_of<X>(a.bias, a.bias_dtype, chunk, T(0), bias_buffer);
      }
      const bool finite = !std::is_same_v<X, BFloat16> || (weight.finite && bias.finite);
      for (std::int64_t r = 0; r < rows; ++r) {
        const RowStatistics<T> s = statistics[r];
        const X* from = x + r * row_stride + chunk.begin;
        X* to = y + r * cols + chunk.begin;
        const auto apply = [&]<Store kStore>(auto* columns) KERNEL_LAMBDA {
          apply_to_chunk<kStore>(columns, to, weight.columns, bias.columns, chunk.cols, s,
                                 from + tile * row_stride);
        };
        if (!finite || !is_plain(s)) [[unlikely]] {
          apply_to_special_chunk(from, to, weight.columns, bias.columns, chunk.cols, s);
        } else if (streamed) {
          apply.template operator()<Store::streamed>(from);
        } else if (kKept<X> && chunks == 1) {
          apply.template operator()<Store::no_nan>(kept.numbers + r * padded_cols(cols));
        } else {
          apply.template operator()<Store::no_nan>(from);
        }
      }
    }
  }
  if (streamed) finish_streams();
}

/// The moments of all chunks of all rows, then the outputs: two rounds of tasks, in the second of
/// which a chunk's weight and bias are read once for all rows.
template <class X>
void forward_rows_shared(const LayerNormForward& a, std::int64_t begin, std::int64_t end,
                         void* chunk_sums, const ParallelFor& threads) {
  using T = Compute<X>;
  static_assert(sizeof(Moments<T>) <= kChunkSumsBytes);
  const T eps = static_cast<T>(a.eps);
  const std::int64_t chunks = chunks_in(a.cols);
  const std::int64_t rows = end - begin;
  const X* x = static_cast<const X*>(a.input) + begin * a.row_stride;
  X* y = static_cast<X*>(a.output) + begin * a.cols;

  Moments<T>* parts = static_cast<Moments<T>*>(chunk_sums);
  on_threads(threads, rows * chunks, [&](std::int64_t i) {
    Kept<T> kept;
    parts[i] = moments_of_chunk(Rows<X>{x, a.row_stride, nullptr, rows, a.cols}, i / chunks,
                                chunk_of(a.cols, i % chunks), kept);
  });
  RowStatistics<T> statistics[kMostSharedRows];
  on_threads(threads, rows, [&](std::int64_t r) {
    const Moments<T> moments = moments_of_row<T>(
        a.cols, [&](Chunk chunk) { return parts[r * chunks + chunk.begin / kChunkCols]; });
    statistics[r] = statistics_of_row(x + r * a.row_stride, a.cols, eps, moments);
    keep_statistics(a, begin + r, statistics[r]);
  });
  on_threads(threads, chunks, [&](std::int64_t i) {
    const Chunk chunk = chunk_of(a.cols, i);
    Buffer<T> weight_buffer;
    Buffer<T> bias_buffer;
    const auto weight = parameter_of<X>(a.weight, a.weight_dtype, chunk, T(1), weight_buffer);
    const auto bias = parameter_of<X>(a.bias, a.bias_dtype, chunk, T(0), bias_buffer);
    for (std::int64_t r = 0; r < rows; ++r) {
      const X* from = x + r * a.row_stride + chunk.begin;
      apply_to_chunk<Store::any>(from, y + r * a.cols + chunk.begin, weight.columns, bias.columns,
                                 chunk.cols, statistics[r], from + a.row_stride);
    }
  });
}

void forward(const LayerNormForward& a, std::int64_t begin, std::int64_t end, bool streamed) {
  with_element(a.input_dtype, [&](auto x) { forward_rows<decltype(x)>(a, begin, end, streamed); });
}

void forward_shared(const LayerNormForward& a, std::int64_t begin, std::int64_t end,
                    void* chunk_sums, const ParallelFor& threads) {
  with_element(a.input_dtype, [&](auto x) {
    forward_rows_shared<decltype(x)>(a, begin, end, chunk_sums, threads);
  });
}

}  // namespace
}  // namespace simple_layernorm::cpu
