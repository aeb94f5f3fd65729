// The forward pass over rows, a tile of them at a time: sums about a shift, then outputs while the
// tile is still in cache. The sums of one tile and the outputs of the one before run together.
// math/layer_norm.hpp has the formula. Figures: one thread, interleaved with the other choice,
// 2026-11-30, on the Xeon of tests/performance/results/cpu.md where they do not say EPYC.
#pragma once

#include "cpu/forward_statistics.hpp"

namespace simple_layernorm::cpu {
namespace {

/// Whether tiles of rows of one chunk have up to as many rows as a block has lanes, for the sake of
/// their statistics: where no pass leaves its numbers for the next in the first-level cache. 16
/// bits at 128 x 1024 and 4096 x 768 take 0.84 to 0.86 of the time so, float32 up to 1.12 times
/// (EPYC).
template <class X>
constexpr bool kLargeTiles = sizeof(X) == 2 && !kKept<X>;
/// Elements of a tile of rows of one chunk: in the second- or else the first-level cache.
template <class X>
constexpr std::int64_t kTileElements = kLargeTiles<X> ? 32768 : 2048;
/// Bytes of a tile of longer rows: two of them and their outputs in the second-level cache.
constexpr std::int64_t kLongTileBytes = 131072;
/// Rows of so few columns, if their numbers are kept, take their sums and their outputs one after
/// the other: 65536 x 64 takes 0.85 of the time so. float32, more traffic and less arithmetic,
/// takes 1.1 times (EPYC).
constexpr std::int64_t kNarrowRow = 128;
/// Elements between fetching a line into the first-level cache and using it, in rows of one chunk.
/// 4096 of them, into the second-level cache, cost 16 bits at 4096 x 768 1.03 times the time. All
/// shifts of a tile are taken first, so that a large one and one of narrow rows are fetched sooner:
/// large tiles take 1.0 to 1.1 times as long with 1024 (EPYC).
template <class X>
KERNEL_INLINE std::int64_t read_ahead(std::int64_t cols) {
  return kLargeTiles<X> ? 8192 : cols > kNarrowRow ? 1024 : kTileElements<X>;
}

template <class X>
KERNEL_INLINE std::int64_t tile_rows(std::int64_t cols) {
  constexpr std::int64_t kMost = kMostTileRows<Compute<X>>;
  const std::int64_t rows = cols <= kChunkCols
                                ? kTileElements<X> / padded_cols(cols)
                                : kLongTileBytes / (cols * static_cast<std::int64_t>(sizeof(X)));
  return rows < 1 ? 1 : rows < kMost ? rows : kMost;
}

/// Some rows and what is known of them.
template <class X, class T = Compute<X>>
struct alignas(64) Tile {
  std::int64_t rows = 0;
  const X* x = nullptr;
  X* y = nullptr;
  bool plain = true;  ///< no row was scaled: see rescue_scale(), also for NaN and infinity
  TileStatistics<T> statistics;
  /// The rows less their shift, if kKept<X>, whose tiles have no more elements.
  alignas(64) T shifted[kChunkCols + kApart / sizeof(T)];
};
// At a distance of 4096 bytes, 16 bits of 768 to 2048 columns take 1.1 to 1.2 times as long.
static_assert(sizeof(Tile<BFloat16>) % 4096 >= kApart);
static_assert(sizeof(Tile<BFloat16>) % 4096 <= 4096 - kApart);

/// Weight and bias of a chunk.
template <class X, class T = Compute<X>>
struct Parameters {
  Buffer<T> weight_buffer;
  Buffer<T> bias_buffer;
  const T* weight = nullptr;
  const T* bias = nullptr;

  KERNEL_INLINE void read(const LayerNormForward& a, Chunk chunk) {
    weight = parameter_of<X>(a.weight, a.weight_dtype, chunk, T(1), weight_buffer);
    bias = parameter_of<X>(a.bias, a.bias_dtype, chunk, T(0), bias_buffer);
  }
};

/// Outputs of some columns of a row that needs no scale, or whose numbers v are scaled.
template <Store kStore, class X, class Part, class T = Compute<X>>
KERNEL_INLINE void apply_to_columns(Vector<T> v, T shift, RowStatistics<T> s, const T* weight,
                                    const T* bias, X* y, Part part) {
  using V = Vector<T>;
  V offset(s.offset);
  if constexpr (sizeof(X) > 2) offset = fine_offset(v, V(shift), V(s.rstd_tail), offset);
  const V x_hat = normalise(v, V(shift), V(s.rstd), offset);
  store<kStore>(y, fma(x_hat, load(weight, whole(part)), load(bias, whole(part))), part);
}
/// Outputs of a chunk of a row. Input that lies `ahead` elements further on is fetched.
template <Store kStore, class X, class T = Compute<X>>
__attribute__((noinline)) void apply_to_chunk(const X* x, X* y, const Parameters<X>& parameters,
                                              std::int64_t cols, RowStatistics<T> s,
                                              std::int64_t ahead) {
  const T* const weight = parameters.weight;
  const T* const bias = parameters.bias;
  for_vectors<T>(cols, [&](std::int64_t col, auto part) KERNEL_LAMBDA {
    prefetch_to_read<1>(x + ahead + col, part);
    if constexpr (kStore != Store::streamed) prefetch_to_write(y + kWriteAhead + col, part);
    apply_to_columns<kStore>(load(x + col, part) * Vector<T>(s.scale), s.shift, s, weight + col,
                             bias + col, y + col, part);
  });
}

/// A chunk of a row in a pass. What lies `ahead` elements further on is fetched.
template <class X, class T = Compute<X>>
struct Summed {
  const X* x;
  T shift;
  T* left;  ///< for the numbers less the shift, if they are kept
  std::int64_t ahead;
};
template <class X, class T = Compute<X>>
struct Applied {
  const X* x;
  const T* found;  ///< what was left, if it was kept
  X* y;
  RowStatistics<T> statistics;
  const T* weight;
  const T* bias;
  std::int64_t ahead;
};

/// The sums over a chunk of one row, if kSum, and the outputs over that of another, if kApply. In
/// one loop, the arithmetic of one overlaps with the traffic of the other: 16 bits at 4096 x 768
/// take 0.85 of the time that three loops one after the other took.
template <bool kSum, bool kApply, bool kKeep, Store kStore, class X, class T = Compute<X>>
KERNEL_INLINE ShiftedSums<T> pass_over_chunk(Summed<X> summed, Applied<X> applied,
                                             std::int64_t cols) {
  Sum<T> s1;
  Sum<T> s2;
  for_vectors<T>(cols, [&](std::int64_t col, auto part) KERNEL_LAMBDA {
    if constexpr (kSum) {
      prefetch_to_read<1>(summed.x + summed.ahead + col, part);
      const Vector<T> d = keep<X>(load(summed.x + col, part) - Vector<T>(summed.shift), part);
      if constexpr (kKeep) store(summed.left + col, d, whole(part));
      s1[part] = s1[part] + d;
      s2[part] = fma(d, d, s2[part]);
    }
    if constexpr (kApply) {
      if constexpr (kStore != Store::streamed)
        prefetch_to_write(applied.y + applied.ahead + col, part);
      const auto apply = [&](Vector<T> v, T shift) KERNEL_LAMBDA {
        apply_to_columns<kStore>(v, shift, applied.statistics, applied.weight + col,
                                 applied.bias + col, applied.y + col, part);
      };
      if constexpr (kKeep) {
        apply(load(applied.found + col, whole(part)), T(0));
      } else {
        apply(load(applied.x + col, part), applied.statistics.shift);
      }
    }
  });
  return {s1.folded(), s2.folded()};
}

/// A chunk of `sum_rows` rows of one tile, whose moments are added to `moments`, together with the
/// same chunk of `apply_rows` rows of another, whose outputs are written.
template <bool kKeep, Store kStore, class X, class T = Compute<X>>
void pass_over_tiles(const LayerNormForward& a, Chunk chunk, const Parameters<X>& parameters,
                     Tile<X>& to_sum, std::int64_t sum_rows, const Tile<X>& to_apply,
                     std::int64_t apply_rows, TileMoments<T>& moments) {
  // Copies, as all that lies in memory might change with every element that is stored.
  const std::int64_t cols = a.cols;
  const std::int64_t row_stride = a.row_stride;
  const std::int64_t kept_stride = padded_cols(cols);
  const std::int64_t begin = chunk.begin;
  const std::int64_t chunk_cols = chunk.cols;
  // A tile's chunks are taken one after the other, and then those of the next tile.
  const auto ahead = [&](std::int64_t stride, std::int64_t elements) KERNEL_LAMBDA {
    if (cols <= kChunkCols) return elements;
    return begin + chunk_cols < cols ? kChunkCols : tile_rows<X>(cols) * stride - begin;
  };
  TileSums<T> sums;
  sums.choose_shifts(to_sum.x, row_stride, sum_rows, chunk);
  const Summed<X> sum = {to_sum.x, T(0), to_sum.shifted, ahead(row_stride, read_ahead<X>(cols))};
  const Applied<X> apply = {
      to_apply.x,      to_apply.shifted,        to_apply.y, {}, parameters.weight,
      parameters.bias, ahead(cols, kWriteAhead)};
  const TileStatistics<T>& statistics = to_apply.statistics;

  const auto pass = [&]<bool kSum, bool kApply>(std::int64_t r) KERNEL_LAMBDA {
    Summed<X> one = sum;
    Applied<X> other = apply;
    if constexpr (kSum) {
      one.x += r * row_stride + begin;
      one.shift = sums.shift[r];
      if constexpr (kKeep) one.left += r * kept_stride;
    }
    if constexpr (kApply) {
      other.x += r * row_stride + begin;
      other.y += r * cols + begin;
      other.statistics = statistics.of(r);
      if constexpr (kKeep) other.found += r * kept_stride;
    }
    const ShiftedSums<T> of_row =
        pass_over_chunk<kSum, kApply, kKeep, kStore>(one, other, chunk_cols);
    if constexpr (kSum) {
      sums.s1[r] = of_row.s1;
      sums.s2[r] = of_row.s2;
    }
  };
  const std::int64_t both = sum_rows < apply_rows ? sum_rows : apply_rows;
  for (std::int64_t r = 0; r < both; ++r) pass.template operator()<true, true>(r);
  for (std::int64_t r = both; r < sum_rows; ++r) pass.template operator()<true, false>(r);
  for (std::int64_t r = both; r < apply_rows; ++r) pass.template operator()<false, true>(r);
  sums.add_to(moments, sum_rows, chunk);

  if (apply_rows == 0 || to_apply.plain) return;
  if (kStore == Store::streamed) finish_streams();
  // Of a scaled row, what was written is wrong. Other rows get the same bits again.
  for (std::int64_t r = 0; r < apply_rows; ++r) {
    apply_to_chunk<Store::cached>(to_apply.x + r * row_stride + begin,
                                  to_apply.y + r * cols + begin, parameters, chunk_cols,
                                  statistics.of(r), 0);
  }
}

template <class T>
KERNEL_INLINE void keep_statistics(const LayerNormForward& a, std::int64_t row,
                                   RowStatistics<T> s) {
  if (a.mean != nullptr) static_cast<T*>(a.mean)[row] = s.unscaled_mean();
  if (a.rstd != nullptr) static_cast<T*>(a.rstd)[row] = s.unscaled_rstd();
}

template <bool kKeep, Store kStore, class X>
void forward_tiles(const LayerNormForward& a, std::int64_t begin, std::int64_t end) {
  using T = Compute<X>;
  const std::int64_t cols = a.cols;
  const std::int64_t chunks = chunks_in(cols);
  const std::int64_t tile = tile_rows<X>(cols);
  const bool together = cols > kNarrowRow || !kKept<X>;
  Parameters<X> parameters;
  TileMoments<T> moments;
  Tile<X> tiles[2];
  for (int side = 0; begin < end || tiles[side ^ 1].rows > 0; begin += tile, side ^= 1) {
    Tile<X>& next = tiles[side];
    Tile<X>& now = tiles[side ^ 1];
    next.rows = end - begin >= tile ? tile : end > begin ? end - begin : 0;
    next.x = static_cast<const X*>(a.input) + begin * a.row_stride;
    next.y = static_cast<X*>(a.output) + begin * cols;
    for (std::int64_t i = 0; i < chunks; ++i) {
      const Chunk chunk = chunk_of(cols, i);
      if (now.rows > 0 && (chunks > 1 || parameters.weight == nullptr)) {
        parameters.read(a, chunk);
      }
      pass_over_tiles<kKeep, kStore>(a, chunk, parameters, next, next.rows, now, now.rows, moments);
    }
    next.plain = statistics_of_rows(next.x, a.row_stride, next.rows, cols,
                                    with_one_nan(static_cast<T>(a.eps)), moments, next.statistics);
    for (std::int64_t r = 0; r < next.rows; ++r)
      keep_statistics(a, begin + r, next.statistics.of(r));
    now.rows = 0;
    if (together) continue;
    if (parameters.weight == nullptr) parameters.read(a, chunk_of(cols, 0));
    pass_over_tiles<kKeep, kStore>(a, chunk_of(cols, 0), parameters, now, 0, next, next.rows,
                                   moments);
    next.rows = 0;
  }
}

template <class X>
void forward_rows(const LayerNormForward& a, std::int64_t begin, std::int64_t end, bool streamed) {
  const auto run = [&]<Store kStore>() {
    if (a.cols <= kChunkCols) return forward_tiles<kKept<X>, kStore, X>(a, begin, end);
    forward_tiles<false, kStore, X>(a, begin, end);
  };
  if (!streamed) return run.template operator()<Store::cached>();
  run.template operator()<Store::streamed>();
  finish_streams();
}

/// The moments of all chunks of all rows, then the outputs: two rounds of tasks, in the second of
/// which a chunk's weight and bias are read once for all rows.
template <class X>
void forward_rows_shared(const LayerNormForward& a, std::int64_t begin, std::int64_t end,
                         void* chunk_sums, const ParallelFor& threads, bool streamed) {
  using T = Compute<X>;
  static_assert(sizeof(Moments<T>) <= kChunkSumsBytes);
  const T eps = with_one_nan(static_cast<T>(a.eps));
  const std::int64_t chunks = chunks_in(a.cols);
  const std::int64_t rows = end - begin;
  const X* x = static_cast<const X*>(a.input) + begin * a.row_stride;
  X* y = static_cast<X*>(a.output) + begin * a.cols;

  Moments<T>* parts = static_cast<Moments<T>*>(chunk_sums);
  on_threads(threads, rows * chunks, [&](std::int64_t i) {
    const Chunk chunk = chunk_of(a.cols, i % chunks);
    parts[i] = moments_of_chunk(x + i / chunks * a.row_stride + chunk.begin, chunk.cols);
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
    Parameters<X> parameters;
    parameters.read(a, chunk);
    const auto apply =
        streamed ? apply_to_chunk<Store::streamed, X> : apply_to_chunk<Store::cached, X>;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t next = r + 1 < rows ? a.row_stride : kChunkCols - r * a.row_stride;
      apply(x + r * a.row_stride + chunk.begin, y + r * a.cols + chunk.begin, parameters,
            chunk.cols, statistics[r], next);
    }
    if (streamed) finish_streams();
  });
}

void forward(const LayerNormForward& a, std::int64_t begin, std::int64_t end, bool streamed) {
  with_element(a.input_dtype, [&](auto x) { forward_rows<decltype(x)>(a, begin, end, streamed); });
}

void forward_shared(const LayerNormForward& a, std::int64_t begin, std::int64_t end,
                    void* chunk_sums, const ParallelFor& threads, bool streamed) {
  with_element(a.input_dtype, [&](auto x) {
    forward_rows_shared<decltype(x)>(a, begin, end, chunk_sums, threads, streamed);
  });
}

}  // namespace
}  // namespace simple_layernorm::cpu
