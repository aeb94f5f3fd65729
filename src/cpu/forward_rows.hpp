// The forward pass over rows: two passes for the statistics and one that applies them, all over
// rows that stay in cache. math/layer_norm.hpp has the formula.
#pragma once

#include "cpu/columns.hpp"
#include "math/layer_norm.hpp"

namespace simple_layernorm::cpu {
namespace {

template <bool kScaled, class X, class Part, class T = Compute<X>>
KERNEL_INLINE Vector<T> load_scaled(const X* p, T scale, Part part) {
  const Vector<T> v = load(p, part);
  if constexpr (kScaled) return v * Vector<T>(scale);
  return v;
}

/// About the mean of some columns of a row. kScaled: they are multiplied by `scale` first.
template <bool kScaled, class X, class T = Compute<X>>
KERNEL_INLINE T shift_of_chunk(const X* x, std::int64_t cols, T scale) {
  using V = Vector<T>;
  V even(T(0));
  V odd(T(0));
  for_vector_pairs<T>(
      cols,
      [&](std::int64_t col) KERNEL_LAMBDA {
        even = even + load_scaled<kScaled>(x + col, scale, Whole{});
        odd = odd + load_scaled<kScaled>(x + col + kLanes<T>, scale, Whole{});
      },
      [&](std::int64_t col, auto part)
          KERNEL_LAMBDA { even = even + load_scaled<kScaled>(x + col, scale, part); });
  return total(even + odd) * (T(1) / static_cast<T>(cols));
}

/// Their moments, from the sums about `shift`. Meanwhile the cache lines of y are fetched, if it is
/// not null.
template <bool kScaled, class X, class T = Compute<X>>
KERNEL_INLINE Moments<T> moments_of_chunk(const X* x, std::int64_t cols, T scale, T shift, X* y) {
  using V = Vector<T>;
  V s1(T(0));
  V even_s2(T(0));
  V odd_s2(T(0));
  for_vector_pairs<T>(
      cols,
      [&](std::int64_t col) KERNEL_LAMBDA {
        if (y != nullptr) {
          prefetch_to_write(y + col);
          prefetch_to_write(y + col + kLanes<T>);
        }
        const V a = load_scaled<kScaled>(x + col, scale, Whole{}) - V(shift);
        const V b = load_scaled<kScaled>(x + col + kLanes<T>, scale, Whole{}) - V(shift);
        s1 = s1 + (a + b);
        even_s2 = fma(a, a, even_s2);
        odd_s2 = fma(b, b, odd_s2);
      },
      [&](std::int64_t col, auto part) KERNEL_LAMBDA {
        const V a = keep<X>(load_scaled<kScaled>(x + col, scale, part) - V(shift), part);
        s1 = s1 + a;
        even_s2 = fma(a, a, even_s2);
      });
  return moments_of(shift, total(s1), total(even_s2 + odd_s2), T(1) / static_cast<T>(cols));
}

/// Moments of a row, from those of its chunks: chunk_moments(chunk).
template <class T, class F>
KERNEL_INLINE Moments<T> moments_of_row(std::int64_t cols, F chunk_moments) {
  Moments<T> row = chunk_moments(chunk_of(cols, 0));
  for (std::int64_t i = 1; i < chunks_in(cols); ++i) {
    const Chunk chunk = chunk_of(cols, i);
    row = merge(row, static_cast<T>(chunk.begin), chunk_moments(chunk), static_cast<T>(chunk.cols));
  }
  return row;
}
template <class X, class T = Compute<X>>
__attribute__((noinline, cold)) Moments<T> moments_of_scaled_row(const X* x, std::int64_t cols,
                                                                 T scale) {
  return moments_of_row<T>(cols, [=](Chunk chunk) {
    const X* from = x + chunk.begin;
    const T shift = shift_of_chunk<true>(from, chunk.cols, scale);
    return moments_of_chunk<true>(from, chunk.cols, scale, shift, static_cast<X*>(nullptr));
  });
}

/// Outputs of some columns; Store::any also for rows that are scaled. Meanwhile the cache lines at
/// `next` are fetched.
template <Store kStore, class X, class T = Compute<X>>
KERNEL_INLINE void apply_to_chunk(const X* x, X* y, const T* weight, const T* bias,
                                  std::int64_t cols, RowStatistics<T> s, const X* next) {
  using V = Vector<T>;
  for_vectors<T>(cols, [&](std::int64_t col, auto part) KERNEL_LAMBDA {
    prefetch_to_read(next + col);
    V v = load(x + col, part);
    if constexpr (kStore == Store::any) v = v * V(s.scale);
    const V x_hat = normalise(v, V(s.shift), V(s.rstd), V(s.offset));
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

/// Rows whose statistics are computed before they are applied: one row's divisions and square root
/// then overlap with the next row's sums, and a chunk's weight is converted once for all of them.
constexpr int kMostTileRows = 32;
constexpr std::int64_t kTileBytes = 8192;        ///< of rows of one chunk: in the first-level cache
constexpr std::int64_t kLongTileBytes = 131072;  ///< of longer rows: in the second-level cache

template <class X>
KERNEL_INLINE std::int64_t tile_rows(std::int64_t cols) {
  const std::int64_t bytes = cols <= kChunkCols ? kTileBytes : kLongTileBytes;
  const std::int64_t rows = bytes / (cols * static_cast<std::int64_t>(sizeof(X)));
  return rows < 1 ? 1 : rows < kMostTileRows ? rows : kMostTileRows;
}

template <class X>
void forward_rows(const LayerNormForward& a, std::int64_t begin, std::int64_t end, bool streamed) {
  using T = Compute<X>;
  const std::int64_t cols = a.cols;
  const std::int64_t row_stride = a.row_stride;
  const T eps = static_cast<T>(a.eps);
  const T n = static_cast<T>(cols);
  const std::int64_t chunks = chunks_in(cols);
  const std::int64_t tile = tile_rows<X>(cols);

  Buffer<T> weight_buffer;
  Buffer<T> bias_buffer;
  Parameter<T> weight = {};
  Parameter<T> bias = {};
  for (; begin < end; begin += tile) {
    const std::int64_t rows = end - begin < tile ? end - begin : tile;
    const X* x = static_cast<const X*>(a.input) + begin * row_stride;
    X* y = static_cast<X*>(a.output) + begin * cols;

    // A mean is the end of a long chain: the next rows' begin before it is needed.
    T shifts[kMostTileRows];
    const Chunk first = chunk_of(cols, 0);
    for (std::int64_t r = 0; r < rows; ++r) {
      shifts[r] = shift_of_chunk<false>(x + r * row_stride, first.cols, T(1));
    }
    RowStatistics<T> statistics[kMostTileRows];
    for (std::int64_t r = 0; r < rows; ++r) {
      const X* from = x + r * row_stride;
      Moments<T> moments = moments_of_row<T>(cols, [&](Chunk chunk) KERNEL_LAMBDA {
        const T shift = chunk.begin == 0
                            ? shifts[r]
                            : shift_of_chunk<false>(from + chunk.begin, chunk.cols, T(1));
        return moments_of_chunk<false>(
            from + chunk.begin, chunk.cols, T(1), shift,
            streamed ? static_cast<X*>(nullptr) : y + r * cols + chunk.begin);
      });
      const T scale = rescue_scale(moments.m2, eps);
      if (scale != T(1)) [[unlikely]]
        moments = moments_of_scaled_row(from, cols, scale);
      statistics[r] = row_statistics(moments, n, eps, scale);
      keep_statistics(a, begin + r, statistics[r]);
    }
    for (std::int64_t i = 0; i < chunks; ++i) {
      const Chunk chunk = chunk_of(cols, i);
      if (chunks > 1 || weight.columns == nullptr) {
        weight = parameter_of<X>(a.weight, a.weight_dtype, chunk, T(1), weight_buffer);
        bias = parameter_of<X>(a.bias, a.bias_dtype, chunk, T(0), bias_buffer);
      }
      const bool finite = sizeof(X) != 2 || (weight.finite && bias.finite);
      for (std::int64_t r = 0; r < rows; ++r) {
        const RowStatistics<T> s = statistics[r];
        const X* from = x + r * row_stride + chunk.begin;
        X* to = y + r * cols + chunk.begin;
        if (!finite || !is_plain(s)) [[unlikely]] {
          apply_to_special_chunk(from, to, weight.columns, bias.columns, chunk.cols, s);
        } else if (streamed) {
          apply_to_chunk<Store::streamed>(from, to, weight.columns, bias.columns, chunk.cols, s,
                                          from + tile * row_stride);
        } else {
          apply_to_chunk<Store::no_nan>(from, to, weight.columns, bias.columns, chunk.cols, s,
                                        from + tile * row_stride);
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
  const T n = static_cast<T>(a.cols);
  const std::int64_t chunks = chunks_in(a.cols);
  const std::int64_t rows = end - begin;
  const X* x = static_cast<const X*>(a.input) + begin * a.row_stride;
  X* y = static_cast<X*>(a.output) + begin * a.cols;

  Moments<T>* parts = static_cast<Moments<T>*>(chunk_sums);
  on_threads(threads, rows * chunks, [&](std::int64_t i) {
    const Chunk chunk = chunk_of(a.cols, i % chunks);
    const X* from = x + i / chunks * a.row_stride + chunk.begin;
    const T shift = shift_of_chunk<false>(from, chunk.cols, T(1));
    parts[i] = moments_of_chunk<false>(from, chunk.cols, T(1), shift, static_cast<X*>(nullptr));
  });
  RowStatistics<T> statistics[kMostSharedRows];
  on_threads(threads, rows, [&](std::int64_t r) {
    Moments<T> moments = moments_of_row<T>(
        a.cols, [&](Chunk chunk) { return parts[r * chunks + chunk.begin / kChunkCols]; });
    const T scale = rescue_scale(moments.m2, eps);
    if (scale != T(1)) moments = moments_of_scaled_row(x + r * a.row_stride, a.cols, scale);
    statistics[r] = row_statistics(moments, n, eps, scale);
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
