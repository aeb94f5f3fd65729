// Statistics of rows for the forward pass: the two passes of math/layer_norm.hpp over rows that
// stay in cache, a tile of them at a time. forward_rows.hpp applies them.
#pragma once

#include <type_traits>

#include "cpu/columns.hpp"
#include "math/layer_norm.hpp"

namespace simple_layernorm::cpu {
namespace {

/// Numbers that the first pass leaves, if kKept<X>: a third of a first-level cache. With 8192,
/// 16-bit forward at 128 x 1024 took 1.4 times as long.
constexpr std::int64_t kMostKept = 4096;
template <class T>
struct alignas(64) Kept {
  T numbers[kMostKept];
};

/// Columns of a row of X, where they lie or as numbers that were left.
template <class X, class From, class Part>
KERNEL_INLINE Vector<Compute<X>> load_columns(const From* p, Part part) {
  if constexpr (std::is_same_v<From, X>) return load(p, part);
  return load(p, Whole{});
}

/// Sum of some columns of a row.
template <class X, class From, class T = Compute<X>>
KERNEL_INLINE Register<T> sum_of_columns(const From* x, std::int64_t cols, T* kept) {
  using V = Vector<T>;
  V even(T(0));
  V odd(T(0));
  const auto take = [&](std::int64_t col, auto part) KERNEL_LAMBDA {
    const V v = load_columns<X>(x + col, part);
    if constexpr (kKept<From>) store(kept + col, v, Whole{});
    return v;
  };
  for_vector_pairs<T>(
      cols,
      [&](std::int64_t col) KERNEL_LAMBDA {
        even = even + take(col, Whole{});
        odd = odd + take(col + kLanes<T>, Whole{});
      },
      [&](std::int64_t col, auto part) KERNEL_LAMBDA { even = even + take(col, part); });
  return folded(even + odd);
}

template <class T>
struct ShiftedSums {
  Register<T> s1;
  Register<T> s2;
};
/// Their sums about `shift`. Meanwhile the cache lines of y are fetched, if it is not null.
template <class X, class From, class T = Compute<X>>
KERNEL_INLINE ShiftedSums<T> shifted_sums(const From* x, std::int64_t cols, T shift, X* y) {
  using V = Vector<T>;
  V s1(T(0));
  V even_s2(T(0));
  V odd_s2(T(0));
  const auto take = [&](std::int64_t col, auto part) KERNEL_LAMBDA {
    if (y != nullptr) prefetch_to_write(y + col);
    return keep<X>(load_columns<X>(x + col, part) - V(shift), part);
  };
  for_vector_pairs<T>(
      cols,
      [&](std::int64_t col) KERNEL_LAMBDA {
        const V a = take(col, Whole{});
        const V b = take(col + kLanes<T>, Whole{});
        s1 = s1 + (a + b);
        even_s2 = fma(a, a, even_s2);
        odd_s2 = fma(b, b, odd_s2);
      },
      [&](std::int64_t col, auto part) KERNEL_LAMBDA {
        const V a = take(col, part);
        s1 = s1 + a;
        even_s2 = fma(a, a, even_s2);
      });
  return {folded(s1), folded(even_s2 + odd_s2)};
}

/// The same columns of some rows.
template <class X, class From = X>
struct Rows {
  const From* x;
  std::int64_t row_stride;
  X* y;  ///< of `cols` columns each, or null; only to be fetched
  std::int64_t count;
  std::int64_t cols;

  template <class T = Compute<X>>
  KERNEL_INLINE Register<T> sum(std::int64_t row, Kept<T>& kept) const {
    return sum_of_columns<X>(x + row * row_stride, cols, kept.numbers + row * padded_cols(cols));
  }
  template <class T = Compute<X>>
  KERNEL_INLINE ShiftedSums<T> shifted(std::int64_t row, T shift, const Kept<T>& kept) const {
    X* to = y == nullptr ? nullptr : y + row * cols;
    if constexpr (kKept<From>) {
      return shifted_sums<X>(kept.numbers + row * padded_cols(cols), cols, shift, to);
    } else {
      return shifted_sums<X>(x + row * row_stride, cols, shift, to);
    }
  }
};

/// Rows whose statistics are computed before they are applied: one row's divisions and square root
/// then overlap with the next row's sums, and a chunk's weight is converted once for all of them.
template <class T>
constexpr int kMostTileRows = kLanes<T>;
/// A tile of fewer rows is done sooner row by row than with a row in every lane: 16-bit forward at
/// 4096 x 768, 5 rows to a tile, took 1.1 times as long with 4 here. At 65536 x 64, lanes save a
/// quarter of the time.
constexpr std::int64_t kFewestVectorRows = 8;

/// Moments of the rows of a tile.
template <class X, class From, class T = Compute<X>>
KERNEL_INLINE void moments_of_rows(Rows<X, From> rows, Kept<T>& kept, Moments<T>* moments) {
  const T inverse_n = T(1) / static_cast<T>(rows.cols);
  T shifts[kMostTileRows<T>];
  for (std::int64_t r = 0; r < rows.count; ++r) {
    shifts[r] = total<T>(rows.sum(r, kept)) * inverse_n;
  }
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const ShiftedSums<T> sums = rows.shifted(r, shifts[r], kept);
    moments[r] = moments_of(shifts[r], total<T>(sums.s1), total<T>(sums.s2), inverse_n);
  }
}

/// A register of each row of a tile.
template <class T>
struct TileRegisters {
  Register<T> row[kMostTileRows<T>];

  KERNEL_INLINE explicit TileRegisters(std::int64_t rows) {
    for (std::int64_t r = rows; r < kMostTileRows<T>; ++r) row[r] = Register<T>{};
  }
  /// The registers' totals, a row's in every lane.
  KERNEL_INLINE Vector<T> sum() const {
    return by_register<T>([&](int i)
                              KERNEL_LAMBDA { return totals<T>(row + i * kRegisterLanes<T>); });
  }
};

/// The same bits with a row in every lane, and rstd as row_statistics() has it for rows that need
/// no more than its plain case.
template <class X, class T = Compute<X>>
KERNEL_INLINE void moments_of_tile(Rows<X> rows, T eps, Kept<T>& kept, Moments<T>* moments, T* rstd,
                                   T* rstd_tail) {
  using V = Vector<T>;
  const T n = static_cast<T>(rows.cols);
  const V inverse_n(T(1) / n);
  TileRegisters<T> s1(rows.count);
  TileRegisters<T> s2(rows.count);
  for (std::int64_t r = 0; r < rows.count; ++r) s1.row[r] = rows.sum(r, kept);
  const V shift = s1.sum() * inverse_n;
  T shifts[kMostTileRows<T>];
  store(shifts, shift, Whole{});
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const ShiftedSums<T> sums = rows.shifted(r, shifts[r], kept);
    s1.row[r] = sums.s1;
    s2.row[r] = sums.s2;
  }
  const Moments<V> all = moments_of(shift, s1.sum(), s2.sum(), inverse_n);
  const HeadAndTail<V> root = inverse_root(variance_of(all.m2, V(n), inverse_n) + V(eps));
  store(rstd, root.head, Whole{});
  store(rstd_tail, root.tail, Whole{});
  T tails[kMostTileRows<T>];
  T m2s[kMostTileRows<T>];
  store(tails, all.tail, Whole{});
  store(m2s, all.m2, Whole{});
  for (std::int64_t r = 0; r < rows.count; ++r) moments[r] = {shifts[r], tails[r], m2s[r]};
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
KERNEL_INLINE Moments<T> moments_of_chunk(Rows<X> rows, std::int64_t row, Chunk chunk,
                                          Kept<T>& kept) {
  const X* x = rows.x + row * rows.row_stride + chunk.begin;
  X* y = rows.y == nullptr ? nullptr : rows.y + row * rows.cols + chunk.begin;
  Moments<T> moments;
  moments_of_rows(Rows<X>{x, 0, y, 1, chunk.cols}, kept, &moments);
  return moments;
}
template <class X, class T = Compute<X>>
__attribute__((noinline, cold)) Moments<T> moments_of_scaled_row(const X* x, std::int64_t cols,
                                                                 T scale) {
  return moments_of_row<T>(cols, [=](Chunk chunk) {
    Kept<T> scaled;
    for_vectors<T>(chunk.cols, [&](std::int64_t col, auto part) {
      store(scaled.numbers + col, load(x + chunk.begin + col, part) * Vector<T>(scale), Whole{});
    });
    Moments<T> moments;
    moments_of_rows(Rows<X, T>{scaled.numbers, 0, nullptr, 1, chunk.cols}, scaled, &moments);
    return moments;
  });
}

template <class X, class T = Compute<X>>
KERNEL_INLINE RowStatistics<T> statistics_of_row(const X* x, std::int64_t cols, T eps,
                                                 Moments<T> moments) {
  const T scale = rescue_scale(moments.m2, eps);
  if (scale != T(1)) [[unlikely]]
    moments = moments_of_scaled_row(x, cols, scale);
  const T n = static_cast<T>(cols);
  return row_statistics(moments, n, T(1) / n, eps, scale);
}

constexpr std::int64_t kTileBytes = 8192;        ///< of rows of one chunk: in the first-level cache
constexpr std::int64_t kLongTileBytes = 131072;  ///< of longer rows: in the second-level cache

template <class X>
KERNEL_INLINE std::int64_t tile_rows(std::int64_t cols) {
  constexpr std::int64_t kMost = kMostTileRows<Compute<X>>;
  const std::int64_t bytes = cols <= kChunkCols ? kTileBytes : kLongTileBytes;
  std::int64_t rows = bytes / (cols * static_cast<std::int64_t>(sizeof(X)));
  if (kKept<X> && cols <= kChunkCols && rows * padded_cols(cols) > kMostKept) {
    rows = kMostKept / padded_cols(cols);
  }
  return rows < 1 ? 1 : rows < kMost ? rows : kMost;
}

/// Statistics of the rows of a tile. Meanwhile the cache lines of y are fetched, if it is not null.
template <class X, class T = Compute<X>>
KERNEL_INLINE void statistics_of_tile(Rows<X> rows, T eps, Kept<T>& kept,
                                      RowStatistics<T>* statistics) {
  Moments<T> moments[kMostTileRows<T>];
  if (kFusedRegisters && rows.cols <= kChunkCols && rows.count >= kFewestVectorRows) {
    T rstd[kMostTileRows<T>], rstd_tail[kMostTileRows<T>];
    moments_of_tile(rows, eps, kept, moments, rstd, rstd_tail);
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const Moments<T> m = moments[r];
      if (m.m2 >= T(0) && rescue_scale(m.m2, eps) == T(1)) [[likely]] {
        statistics[r] = {T(1), m.head, m.tail, rstd[r], rstd_tail[r], -m.tail * rstd[r]};
      } else {
        statistics[r] = statistics_of_row(rows.x + r * rows.row_stride, rows.cols, eps, m);
      }
    }
    return;
  }
  if (rows.cols <= kChunkCols) {
    moments_of_rows(rows, kept, moments);
  } else {
    for (std::int64_t r = 0; r < rows.count; ++r) {
      moments[r] = moments_of_row<T>(rows.cols, [&](Chunk chunk) KERNEL_LAMBDA {
        return moments_of_chunk(rows, r, chunk, kept);
      });
    }
  }
  for (std::int64_t r = 0; r < rows.count; ++r) {
    statistics[r] = statistics_of_row(rows.x + r * rows.row_stride, rows.cols, eps, moments[r]);
  }
}

}  // namespace
}  // namespace simple_layernorm::cpu
