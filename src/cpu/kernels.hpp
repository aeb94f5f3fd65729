// What one level of the CPU backend offers: kernels over rows, compiled once per instruction set
// from the same source. layer_norm.cpp cuts a call into tasks and gives them to the level chosen at
// run time. This header and math/ are all that the levels share.
#pragma once

#include "simple_layernorm/cpu.hpp"

namespace simple_layernorm::cpu {

/// Columns that are summed and applied at a time; the sums of longer rows are sums of such sums.
/// Few enough for a chunk's numbers, weight and bias to stay in the first-level cache together:
/// with 4096, bfloat16 forward at 2048 x 4096 and 1024 x 16384 took 1.08 and 1.14 times as long.
constexpr std::int64_t kChunkCols = 2048;

constexpr std::int64_t chunks_in(std::int64_t cols) { return (cols + kChunkCols - 1) / kChunkCols; }

/// Columns in a row of partial sums: a whole number of vectors.
constexpr std::int64_t padded_cols(std::int64_t cols) { return (cols + 31) / 32 * 32; }

/// Rows whose chunks can be shared out together, and columns that are worth it.
constexpr std::int64_t kMostSharedRows = 64;
constexpr std::int64_t kFewestSharedCols = 65536;

/// Bytes of the sums that a chunk of a row leaves for the others.
constexpr std::size_t kChunkSumsBytes = 3 * sizeof(double);

/// Partial sums of the parameter gradients: [padded_cols] of the statistic dtype for each block of
/// rows, in the order in which vectors hold columns. Null if not wanted.
struct PartialSums {
  void* weight;
  void* bias;
};

struct Kernels {
  const char* name;

  /// Rows [begin, end) on the calling thread. The backward pass writes the sums of these rows.
  /// `streamed`: output or grad_input is stored past the caches; its rows begin at multiples of 64.
  void (*forward)(const LayerNormForward&, std::int64_t begin, std::int64_t end, bool streamed);
  void (*backward)(const LayerNormBackward&, std::int64_t begin, std::int64_t end, PartialSums,
                   bool streamed);

  /// The same for up to kMostSharedRows rows, their chunks shared out to threads. chunk_sums has
  /// room for kChunkSumsBytes of each chunk of each row.
  void (*forward_shared)(const LayerNormForward&, std::int64_t begin, std::int64_t end,
                         void* chunk_sums, const ParallelFor&, bool streamed);
  void (*backward_shared)(const LayerNormBackward&, std::int64_t begin, std::int64_t end,
                          PartialSums, void* chunk_sums, const ParallelFor&);

  /// Chunk `chunk` of grad_weight and grad_bias: the sums of the partial sums of all blocks.
  void (*merge)(const LayerNormBackward&, PartialSums, std::int64_t blocks, std::int64_t chunk);
};

extern const Kernels kBaselineKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

/// Whether this machine and its operating system have the instructions of a level.
bool runs_here(const Kernels& level);

/// The kernels for this machine, chosen once.
const Kernels& kernels();

/// Size of the last-level cache.
std::size_t last_level_cache_bytes();

/// parallel_for for callers that must not instantiate std::function: the kernels of a level.
void run_tasks(const ParallelFor& parallel_for, std::int64_t tasks, const void* context,
               void (*task)(const void* context, std::int64_t i));

}  // namespace simple_layernorm::cpu
