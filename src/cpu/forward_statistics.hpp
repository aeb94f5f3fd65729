// Statistics of rows for the forward pass: a shift near the mean, moments from the sums about it
// that forward_rows.hpp takes, then rstd. math/layer_norm.hpp has the formula.
#pragma once

#include "cpu/columns.hpp"
#include "math/layer_norm.hpp"

namespace simple_layernorm::cpu {
namespace {

/// Rows that are worked on together, at most: a lane for each.
template <class T>
constexpr int kMostTileRows = kLanes<T>;
/// Fewer rows are done sooner one by one than with a row in every lane.
constexpr std::int64_t kFewestVectorRows = 8;

/// Whether so many rows are worked on with a row in every lane. They get the same bits one by one.
template <class T>
KERNEL_INLINE bool in_lanes(std::int64_t rows) {
  return kFusedRegisters && rows >= kFewestVectorRows;
}

/// Totals of a register of each row.
template <class T>
KERNEL_INLINE void totals_of_rows(Register<T>* sums, std::int64_t rows, T* totals_of) {
  if (!in_lanes<T>(rows)) {
    for (std::int64_t r = 0; r < rows; ++r) totals_of[r] = total<T>(sums[r]);
    return;
  }
  for (std::int64_t r = rows; r < kMostTileRows<T>; ++r) sums[r] = Register<T>{};
  for_pieces([&](Whole w) KERNEL_LAMBDA {
    store(totals_of, by_register<T>([&](int i) KERNEL_LAMBDA {
            return totals<T>(sums + lane_of<T>(i, 0, w));
          }),
          w);
  });
}

/// Columns of a chunk whose average is its shift: an eighth of them, of 16-bit rows the first
/// vector. The k averaged columns alone contribute k (shift - mean)^2 or more to n * variance, so
/// that (shift - mean)^2 <= n / k * variance. Taking s1^2 / n off s2 then cancels log2(n / k) of 24
/// bits of mean and rstd: at most 3, and at most 6 where the output keeps 11. With all columns,
/// float32 takes 1.05 to 1.2 times as long; with an eighth from all over the chunk, 1.1 at 4096 x
/// 1000 (EPYC). Without fma, what the mean is off the shift would cost an output one more rounding.
template <class X>
KERNEL_INLINE std::int64_t shift_cols(std::int64_t cols) {
  constexpr std::int64_t kVector = kLanes<Compute<X>>;
  const std::int64_t eighth = (cols + 8 * kVector - 1) / (8 * kVector) * kVector;
  const std::int64_t some = sizeof(X) == 2 ? kVector : kFusedRegisters ? eighth : cols;
  return some < cols ? some : cols;
}

/// Sum of some columns of a row.
template <class X, class T = Compute<X>>
KERNEL_INLINE Register<T> sum_of_columns(const X* x, std::int64_t cols) {
  Sum<T> sum;
  for_vectors<T>(cols, [&](std::int64_t col, auto part)
                           KERNEL_LAMBDA { sum[part] = sum[part] + load(x + col, part); });
  return sum.folded();
}

/// Sums of some columns of a row about its shift.
template <class T>
struct ShiftedSums {
  Register<T> s1;
  Register<T> s2;
};

/// Moments of the rows of a tile.
template <class T>
struct TileMoments {
  T head[kMostTileRows<T>];
  T tail[kMostTileRows<T>];
  T m2[kMostTileRows<T>];

  KERNEL_INLINE Moments<T> of(std::int64_t row) const { return {head[row], tail[row], m2[row]}; }
  KERNEL_INLINE void set(std::int64_t row, Moments<T> m) {
    head[row] = m.head;
    tail[row] = m.tail;
    m2[row] = m.m2;
  }
  KERNEL_INLINE void set(Whole w, Moments<Vector<T>> m) {
    store(head, m.head, w);
    store(tail, m.tail, w);
    store(m2, m.m2, w);
  }
};

/// Sums of the rows of a tile over a chunk.
template <class T>
struct TileSums {
  T shift[kMostTileRows<T>];
  Register<T> s1[kMostTileRows<T>];
  Register<T> s2[kMostTileRows<T>];

  template <class X>
  KERNEL_INLINE void choose_shifts(const X* x, std::int64_t row_stride, std::int64_t rows,
                                   Chunk chunk) {
    const std::int64_t some = shift_cols<X>(chunk.cols);
    for (std::int64_t r = 0; r < rows; ++r) {
      s1[r] = sum_of_columns(x + r * row_stride + chunk.begin, some);
    }
    totals_of_rows(s1, rows, shift);
    for (std::int64_t r = 0; r < rows; ++r) shift[r] *= T(1) / static_cast<T>(some);
  }

  /// Adds this chunk's moments to those of the chunks before it.
  KERNEL_INLINE void add_to(TileMoments<T>& moments, std::int64_t rows, Chunk chunk) {
    using V = Vector<T>;
    T total_s1[kMostTileRows<T>];
    T total_s2[kMostTileRows<T>];
    totals_of_rows(s1, rows, total_s1);
    totals_of_rows(s2, rows, total_s2);
    const T n = static_cast<T>(chunk.cols);
    if (chunk.begin == 0 && in_lanes<T>(rows)) {
      return for_pieces([&](Whole w) KERNEL_LAMBDA {
        moments.set(w,
                    moments_of(load(shift, w), load(total_s1, w), load(total_s2, w), V(T(1) / n)));
      });
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const Moments<T> m = moments_of(shift[r], total_s1[r], total_s2[r], T(1) / n);
      const T before = static_cast<T>(chunk.begin);
      moments.set(r, chunk.begin == 0 ? m : merge(moments.of(r), before, m, n));
    }
  }
};

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

/// Moments of a chunk of a row, in the order in which the passes over tiles take its sums. The next
/// chunk is fetched: with that and what apply_to_chunk() fetches, 16 x 262144 takes 0.80 to 0.87
/// of the time (EPYC).
template <class X, class T = Compute<X>>
KERNEL_INLINE Moments<T> moments_of_chunk(const X* x, std::int64_t cols) {
  const std::int64_t some = shift_cols<X>(cols);
  const T shift = total<T>(sum_of_columns(x, some)) * (T(1) / static_cast<T>(some));
  Sum<T> s1;
  Sum<T> s2;
  for_vectors<T>(cols, [&](std::int64_t col, auto part) KERNEL_LAMBDA {
    prefetch_to_read<1>(x + kChunkCols + col, part);
    const Vector<T> d = keep<X>(load(x + col, part) - Vector<T>(shift), part);
    s1[part] = s1[part] + d;
    s2[part] = fma(d, d, s2[part]);
  });
  return moments_of(shift, s1.total(), s2.total(), T(1) / static_cast<T>(cols));
}

template <class X, class T = Compute<X>>
__attribute__((noinline, cold)) Moments<T> moments_of_scaled_row(const X* x, std::int64_t cols,
                                                                 T scale) {
  return moments_of_row<T>(cols, [=](Chunk chunk) {
    Buffer<T> scaled;
    for_vectors<T>(chunk.cols, [&](std::int64_t col, auto part) {
      store_from<X>(scaled.columns + col, load(x + chunk.begin + col, part) * Vector<T>(scale),
                    part);
    });
    return moments_of_chunk(scaled.columns, chunk.cols);
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

/// Statistics of the rows of a tile, in lanes: 65536 x 64 takes 0.85 of the time that a
/// RowStatistics of each row took.
template <class T>
struct TileStatistics {
  T scale[kMostTileRows<T>];
  T shift[kMostTileRows<T>];
  T tail[kMostTileRows<T>];
  T rstd[kMostTileRows<T>];
  T rstd_tail[kMostTileRows<T>];
  T offset[kMostTileRows<T>];

  KERNEL_INLINE RowStatistics<T> of(std::int64_t row) const {
    return {scale[row], shift[row], tail[row], rstd[row], rstd_tail[row], offset[row]};
  }
  KERNEL_INLINE void set(std::int64_t row, RowStatistics<T> s) {
    scale[row] = s.scale;
    shift[row] = s.shift;
    tail[row] = s.tail;
    rstd[row] = s.rstd;
    rstd_tail[row] = s.rstd_tail;
    offset[row] = s.offset;
  }
};

/// Statistics of the rows of a tile from their moments. Returns whether none is scaled.
template <class X, class T = Compute<X>>
KERNEL_INLINE bool statistics_of_rows(const X* x, std::int64_t row_stride, std::int64_t rows,
                                      std::int64_t cols, T eps, const TileMoments<T>& moments,
                                      TileStatistics<T>& statistics) {
  using V = Vector<T>;
  if (in_lanes<T>(rows)) {
    bool ordinary = true;
    for (std::int64_t r = 0; r < rows; ++r) {
      ordinary &= moments.m2[r] >= T(0) && rescue_scale(moments.m2[r], eps) == T(1);
    }
    if (ordinary) [[likely]] {
      const T n = static_cast<T>(cols);
      for_pieces([&](Whole w) KERNEL_LAMBDA {
        const V tail = load(moments.tail, w);
        const V variance = variance_of(load(moments.m2, w), V(n), V(T(1) / n));
        const HeadAndTail<V> root = inverse_root(variance + V(eps));
        store(statistics.scale, V(T(1)), w);
        store(statistics.shift, load(moments.head, w), w);
        store(statistics.tail, tail, w);
        store(statistics.rstd, root.head, w);
        store(statistics.rstd_tail, root.tail, w);
        store(statistics.offset, -tail * root.head, w);
      });
      return true;
    }
  }
  bool plain = true;
  for (std::int64_t r = 0; r < rows; ++r) {
    const RowStatistics<T> s = statistics_of_row(x + r * row_stride, cols, eps, moments.of(r));
    statistics.set(r, s);
    plain &= s.scale == T(1);
  }
  return plain;
}

}  // namespace
}  // namespace simple_layernorm::cpu
