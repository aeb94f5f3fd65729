// LayerNorm on the CPU: a call cut into tasks for the caller's threads. kernels.hpp says who does
// them.

#include <algorithm>
#include <cstddef>

#include "cpu/kernels.hpp"

namespace simple_layernorm::cpu {
namespace {

/// Elements of a task of the forward pass: so many that its first and last tiles, which overlap
/// with no others, are few, but in large calls not more than leave 64 threads work. With 65536,
/// which are a single tile of long 16-bit rows, 1024 x 16384 takes 1.03 to 1.1 times as long
/// (EPYC).
std::int64_t task_elements(std::int64_t rows, std::int64_t cols) {
  return std::clamp<std::int64_t>(rows * cols / 64, 65536, 262144);
}
/// Elements of a call that is worth waking threads for: some microseconds.
constexpr std::int64_t kSmallElements = 32768;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Whether the caller alone does a call, because waking a thread takes longer (1 x 4096 backward by
/// two threads: 25 us, by one: 14; Xeon, 2026-11-29, bench --threads 1 2).
bool is_small(std::int64_t rows, std::int64_t cols) { return rows * cols <= kSmallElements; }

/// Whether so few rows leave threads without work, and are long enough to share.
bool shares_rows(std::int64_t rows, std::int64_t cols) {
  return rows <= kMostSharedRows && cols >= kFewestSharedCols;
}

/// Whether a result that will not stay in any cache is better stored past them, as streaming stores
/// can. `share` of the last-level cache, which other cores use too, is what such a result exceeds.
bool streams(const void* result, std::int64_t rows, std::int64_t cols, Dtype dtype,
             std::size_t share) {
  constexpr std::size_t kLine = 64;
  const std::size_t row_bytes = static_cast<std::size_t>(cols) * size_of(dtype);
  return result != nullptr &&
         static_cast<std::size_t>(rows) * row_bytes > last_level_cache_bytes() / share &&
         row_bytes % kLine == 0 && reinterpret_cast<std::uintptr_t>(result) % kLine == 0;
}

std::size_t chunk_sums_bytes(std::int64_t rows, std::int64_t cols) {
  if (!shares_rows(rows, cols)) return 0;
  return static_cast<std::size_t>(rows * chunks_in(cols)) * kChunkSumsBytes;
}

/// Calls f(begin, end) for pieces of [0, count).
template <class F>
void in_pieces(std::int64_t count, std::int64_t piece, const ParallelFor& parallel_for, F f) {
  if (count == 0) return;
  if (count <= piece) return f(std::int64_t{0}, count);
  const auto task = [&](std::int64_t i) { f(i * piece, std::min(count, (i + 1) * piece)); };
  parallel_for(divide_up(count, piece), std::cref(task));
}

/// Blocks of rows whose parameter gradients are summed together. A function of the sizes only, so
/// that any number of threads adds in the same order.
struct Blocks {
  std::int64_t rows;
  std::int64_t count;
};
Blocks blocks_of(std::int64_t rows) {
  // At 32 rows, the sums of a block cost a sixteenth of the traffic of bfloat16 rows or less.
  constexpr std::int64_t kFewestRows = 32;
  constexpr std::int64_t kMostBlocks = 128;
  const std::int64_t block = std::max(kFewestRows, divide_up(rows, kMostBlocks));
  return {block, divide_up(rows, block)};
}

/// Where the partial sums of the parameter gradients lie in a workspace.
struct SumsLayout {
  std::size_t row_bytes;
  std::size_t matrix_bytes;
  bool weight;
  bool bias;

  explicit SumsLayout(const LayerNormBackward& a)
      : row_bytes(static_cast<std::size_t>(padded_cols(a.cols)) *
                  size_of(statistic_dtype(a.input_dtype))),
        matrix_bytes(static_cast<std::size_t>(blocks_of(a.rows).count) * row_bytes),
        weight(a.grad_weight != nullptr),
        bias(a.grad_bias != nullptr) {}

  std::size_t bytes() const { return matrix_bytes * (weight + bias); }
  PartialSums of_block(void* workspace, std::int64_t block) const {
    char* sums = static_cast<char*>(workspace) + static_cast<std::size_t>(block) * row_bytes;
    return {weight ? sums : nullptr, bias ? sums + (weight ? matrix_bytes : 0) : nullptr};
  }
};

/// All that the backward pass needs, and how much of it a small call finds on its own stack: an
/// allocation takes as long as its rows (8 x 64).
std::size_t backward_bytes(const LayerNormBackward& a) {
  return SumsLayout(a).bytes() + chunk_sums_bytes(a.rows, a.cols);
}
constexpr std::size_t kSmallBytes = 4096;

}  // namespace

void run_tasks(const ParallelFor& parallel_for, std::int64_t tasks, const void* context,
               void (*task)(const void* context, std::int64_t i)) {
  parallel_for(tasks, [=](std::int64_t i) { task(context, i); });
}

void serial_for(std::int64_t tasks, const std::function<void(std::int64_t)>& task) {
  for (std::int64_t i = 0; i < tasks; ++i) task(i);
}

std::size_t layer_norm_forward_workspace(const LayerNormForward& a) {
  return chunk_sums_bytes(a.rows, a.cols);
}

void layer_norm_forward(const LayerNormForward& a, void* workspace,
                        const ParallelFor& callers_threads) {
  if (a.rows == 0 || a.cols == 0) return;
  const ParallelFor alone = serial_for;
  const ParallelFor& parallel_for = is_small(a.rows, a.cols) ? alone : callers_threads;
  const Kernels& level = kernels();
  const bool streamed = streams(a.output, a.rows, a.cols, a.input_dtype, 4);
  if (shares_rows(a.rows, a.cols)) {
    return level.forward_shared(a, 0, a.rows, workspace, parallel_for, streamed);
  }
  in_pieces(a.rows, divide_up(task_elements(a.rows, a.cols), a.cols), parallel_for,
            [&](std::int64_t begin, std::int64_t end) { level.forward(a, begin, end, streamed); });
}

std::size_t layer_norm_backward_workspace(const LayerNormBackward& a) {
  const std::size_t bytes = backward_bytes(a);
  return bytes <= kSmallBytes ? 0 : bytes;
}

void layer_norm_backward(const LayerNormBackward& a, void* workspace,
                         const ParallelFor& callers_threads) {
  if (a.cols == 0) return;
  const ParallelFor alone = serial_for;
  const ParallelFor& parallel_for = is_small(a.rows, a.cols) ? alone : callers_threads;
  alignas(64) std::byte small[kSmallBytes];
  if (backward_bytes(a) <= kSmallBytes) workspace = small;
  const Kernels& level = kernels();
  const Blocks blocks = blocks_of(a.rows);
  const SumsLayout sums(a);
  if (shares_rows(a.rows, a.cols)) {
    void* chunk_sums = static_cast<char*>(workspace) + sums.bytes();
    for (std::int64_t block = 0; block < blocks.count; ++block) {
      const std::int64_t begin = block * blocks.rows;
      level.backward_shared(a, begin, std::min(a.rows, begin + blocks.rows),
                            sums.of_block(workspace, block), chunk_sums, parallel_for);
    }
  } else {
    const bool streamed = streams(a.grad_input, a.rows, a.cols, a.input_dtype, 1);
    in_pieces(a.rows, blocks.rows, parallel_for, [&](std::int64_t begin, std::int64_t end) {
      level.backward(a, begin, end, sums.of_block(workspace, begin / blocks.rows), streamed);
    });
  }
  if (!sums.weight && !sums.bias) return;
  in_pieces(chunks_in(a.cols), 1, parallel_for, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      level.merge(a, sums.of_block(workspace, 0), blocks.count, chunk);
    }
  });
}

}  // namespace simple_layernorm::cpu
