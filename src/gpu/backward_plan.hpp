// From the problem to the launch of a backward pass, as launch_plan.hpp does for the forward pass.
//
// A team of threads works on one row after the other and keeps the sums of its columns' parameter
// gradients; each block (or group of blocks that share rows) ends with one row of partial sums.
// Cols, the element's size and the device alone decide how a row is shared out, and with it the
// bits of grad_input; rows only decide how many teams there are.
//
// H200, torch 2.11, 2^28 elements, all gradients, ratio to torch.add, 2026-11-29. Repeat with
// python -m simple_layernorm bench --cases backward
#pragma once

#include "gpu/launch_plan.hpp"

namespace simple_layernorm::gpu {

// The general kernel: a block per row, any columns. Its partial sums lie in memory, so that
// kRowsPerPartial rows of input stand against each row of them.
constexpr std::int64_t kRowsPerPartial = 16;
constexpr std::int64_t kBlocksPerMultiprocessor = 8;

/// What a row's elements ask of registers and shared memory, from little to much: 16-bit elements
/// have twice as many sums in a pack.
enum class Elements { bits32, bits16, bits16_with_wide_grads };

constexpr Elements elements_of(int element_size, int grad_size) {
  if (element_size == 4) return Elements::bits32;
  return grad_size == 2 ? Elements::bits16 : Elements::bits16_with_wide_grads;
}

// Narrow rows: teams of some lanes of a wave. The first shape that holds a row is taken. Sums and
// weights lie in shared memory where that pays and the device is NVIDIA's, else in registers.
struct BackwardLanesShape {
  int lanes;   ///< of a team, no more than the wave
  int packs;   ///< of 16 bytes, per lane
  int rows;    ///< that a team reads at a time, but one of wide grads
  int blocks;  ///< per multiprocessor
  bool uses_shared_memory;
  Elements most;  ///< that a thread has room for
  Room needs;
  bool only_16_bits_with_tail = false;  ///< not aligned then
};
constexpr BackwardLanesShape kBackwardLanesShapes[] = {
    // float16, bfloat16, 64 columns: 0.905, 0.901, in registers 0.652 (spills), 0.904 (2026-11-30),
    // bfloat16 in registers with 4 blocks 0.890, with 4 rows 0.892
    {8, 1, 2, 5, true, Elements::bits16_with_wide_grads, Room::registers_256},
    // float32, 64 columns: 0.940; with 1 row and 8 blocks 0.949, but 16-bit elements spill
    {16, 1, 2, 4, false, Elements::bits16_with_wide_grads, Room::registers_256},
    // bfloat16, 256 columns: 0.936, with 2 rows and 2 blocks 0.904
    {16, 2, 1, 4, false, Elements::bits16_with_wide_grads, Room::registers_256},
    // float32, 256 columns: 0.960, with 5 blocks 0.947
    {32, 2, 1, 4, false, Elements::bits16_with_wide_grads, Room::registers_256},
    // bfloat16, 773 columns: 0.719, as aligned rows 0.595, in shared memory 0.615 (2026-11-30)
    {32, 3, 1, 3, false, Elements::bits16, Room::shared_memory, true},
    // bfloat16, 768 columns: 0.945, in shared memory with 4 blocks 0.913
    {32, 3, 2, 2, false, Elements::bits16_with_wide_grads, Room::registers_512},
    // bfloat16, 1001 columns: 0.674, as aligned rows 0.652 (2026-11-30)
    {32, 4, 1, 2, false, Elements::bits16, Room::shared_memory, true},
    // bfloat16, 1000 and 1024 columns: 0.915 and 0.923, in registers 0.88 and 0.91
    {32, 4, 1, 3, true, Elements::bits16_with_wide_grads, Room::registers_512},
    // float32, 640, 773 columns: 0.962, 0.873, by blocks 0.919, 0.740; with 3 blocks 0.686, 8 packs
    // 0.804 (2026-11-30)
    {32, 7, 1, 2, true, Elements::bits32, Room::shared_memory},
};
constexpr int kBackwardLanesShapeCount = static_cast<int>(std::size(kBackwardLanesShapes));
constexpr int kBackwardLanesThreads = 128;

/// Packs per lane of rows without a tail at most: a block is faster at 768 columns (float32, 0.964
/// and 0.943), and as fast at 896.
constexpr int kMostLanePacksWithoutTail = 5;

// Wider rows: the team is a block, of as many waves as the row needs.
struct BackwardBlockShape {
  int packs;    ///< of 16 bytes, per thread
  int threads;  ///< of a block at most
  int blocks;   ///< of that size per multiprocessor; more if smaller and memory allows
  bool uses_shared_memory;
  Elements most;  ///< that a thread has room for
  Room needs;
  bool only_16_bits_with_tail = false;
};
constexpr BackwardBlockShape kBackwardBlockShapes[] = {
    // float32, 768, 1000, 1024 columns: 0.962, 0.943, 0.954; bfloat16, 2048: 0.907
    {2, 128, 5, true, Elements::bits16_with_wide_grads, Room::registers_256},
    // bfloat16, 4096 columns: 0.922, 2 packs of 256 threads 0.854; float32, 2048: 0.941; bfloat16,
    // 4097: 0.716, in registers 0.639, and 2 blocks 0.690 (2026-11-30)
    {4, 128, 3, true, Elements::bits16_with_wide_grads, Room::registers_512},
    // bfloat16, 5001 columns: 0.673, as aligned rows 0.588 (2026-11-30)
    {5, 128, 2, false, Elements::bits16, Room::shared_memory, true},
    // bfloat16, 5120 columns: 0.923, 2 packs of 320 threads 0.882
    {5, 128, 3, true, Elements::bits16, Room::shared_memory},
    // float32, 4096 columns: 0.947, in shared memory 0.932, 8 packs of 128 threads 0.935
    {2, 512, 1, false, Elements::bits32, Room::registers_256},
    // bfloat16, 8192 columns: 0.930, 4 packs of 256 threads 0.906, 2 packs of 512 threads 0.876
    {8, 128, 2, true, Elements::bits16, Room::shared_memory},
    {2, 512, 1, false, Elements::bits16_with_wide_grads, Room::registers_256},
    // bfloat16, 16384 columns: 0.929; float32, 5120, 8192: 0.962, 0.937
    {4, 512, 1, true, Elements::bits16, Room::shared_memory},
};
constexpr int kBackwardBlockShapeCount = static_cast<int>(std::size(kBackwardBlockShapes));

// Rows beyond these: groups of blocks, a piece of the row each, that hand over their sums. The
// blocks of a row wait for each other, so that all must run at the same time.
//
// H200, torch 2.11, 2026-11-30. float32, 16384 to 131072 columns: the first shape 0.948, 0.950,
// 0.954, 0.957; 4 packs of 128, 256, 512 threads 0.919, 0.919, 0.891, 0.874, then 0.922, 0.932,
// 0.927, 0.914, then 0.949, 0.949, 0.962, 0.961, but misaligned rows spill there (0.34, where the
// first of these takes 0.53). bfloat16, 32768 to 131072 columns: the second shape 0.832, 0.811,
// 0.809; one row at a time, 4 packs of 128 threads 0.777, 0.762, 0.753; two rows and 2 packs 0.724,
// 0.707, 0.638. The sums of two rows at a time go through shared memory once. Where the next row's
// loads are issued before this one's sums: bfloat16 0.719 for 0.762, float32 0.87 for 0.92.
struct BackwardSplitShape {
  int packs;
  int threads;  ///< of every block
  int blocks;   ///< per multiprocessor, for 32-bit elements
  int rows;     ///< at a time, but one of wide grads and of misaligned rows
  bool uses_shared_memory;
  Elements most;
  Room needs;
  bool only_16_bits_with_tail = false;
};
constexpr BackwardSplitShape kBackwardSplitShapes[] = {
    {8, 256, 1, 1, true, Elements::bits32, Room::shared_memory},
    {4, 256, 1, 2, true, Elements::bits16_with_wide_grads, Room::shared_memory},
    {4, 128, 4, 1, true, Elements::bits16_with_wide_grads, Room::registers_512},
    {2, 512, 1, 1, false, Elements::bits16_with_wide_grads, Room::registers_256},
};
constexpr int kBackwardSplitShapeCount = static_cast<int>(std::size(kBackwardSplitShapes));

template <class Shape>
constexpr bool exists(const Shape& shape, Room room, Elements elements) {
  return room >= shape.needs && elements <= shape.most;
}

/// has_tail: for rows that end within a pack.
template <class Shape>
constexpr bool serves(const Shape& shape, Room room, Elements elements, bool has_tail) {
  const bool is_for_them = has_tail && elements == Elements::bits16;
  return exists(shape, room, elements) && (!shape.only_16_bits_with_tail || is_for_them);
}

/// Whether the plan ever takes shapes[index] on devices from `least` room to `most`, for aligned
/// rows or others: it takes the first that suffices.
template <class Shapes>
constexpr bool is_reachable(const Shapes& shapes, int index, Room least, Room most,
                            Elements elements, bool are_aligned) {
  const int capacity = shapes[index].packs * shapes[index].threads;
  const Room smallest = std::max(least, shapes[index].needs);
  for (int i = 0; i < index; ++i) {
    const bool suffices = shapes[i].packs * shapes[i].threads >= capacity;
    if (suffices && serves(shapes[i], smallest, elements, false)) return false;
  }
  return serves(shapes[index], most, elements, !are_aligned);
}

enum class BackwardKernel { general, lanes, block, split };

struct BackwardPlan {
  BackwardKernel kernel = BackwardKernel::general;
  int shape = 0;            ///< index in the kernel's list of shapes
  int threads = 0;          ///< of a block
  int pieces = 1;           ///< blocks that share a row
  std::int64_t groups = 0;  ///< of so many blocks, each with its own partial sums
  bool in_parts = false;    ///< see Part
};

/// grad_size is that of an element of grad_output.
inline BackwardPlan plan_backward(std::int64_t rows, std::int64_t cols, int element_size,
                                  int grad_size, const DeviceProperties& device) {
  const std::int64_t packs = whole_packs(cols, element_size);
  const bool has_tail = ends_within_pack(cols, element_size);
  const Elements elements = elements_of(element_size, grad_size);
  const auto plan = [&](BackwardKernel kernel, int shape, int threads, std::int64_t pieces,
                        std::int64_t most_groups, std::int64_t rows_at_a_time) {
    const std::int64_t groups = std::min(divide_up(rows, rows_at_a_time), most_groups);
    return BackwardPlan{kernel, shape, threads, static_cast<int>(pieces), groups};
  };
  for (int i = 0; element_size < 8 && i < kBackwardLanesShapeCount; ++i) {
    const BackwardLanesShape& shape = kBackwardLanesShapes[i];
    const int most_packs =
        has_tail ? shape.packs : std::min(shape.packs, kMostLanePacksWithoutTail);
    if (shape.lanes > device.wave || packs > shape.lanes * most_packs) continue;
    if (!serves(shape, device.room, elements, has_tail)) continue;
    return plan(BackwardKernel::lanes, i, kBackwardLanesThreads, 1,
                std::int64_t{device.multiprocessors} * shape.blocks,
                kBackwardLanesThreads / shape.lanes * shape.rows);
  }
  for (int i = 0; element_size < 8 && i < kBackwardBlockShapeCount; ++i) {
    const BackwardBlockShape& shape = kBackwardBlockShapes[i];
    if (packs > shape.threads * shape.packs) continue;
    if (!serves(shape, device.room, elements, has_tail)) continue;
    const int threads = static_cast<int>(divide_up(packs, shape.packs * device.wave)) * device.wave;
    const int blocks = shape.threads * shape.blocks / threads;
    return plan(BackwardKernel::block, i, threads, 1, std::int64_t{device.multiprocessors} * blocks,
                1);
  }
  for (int i = 0; element_size < 8 && i < kBackwardSplitShapeCount; ++i) {
    const BackwardSplitShape& shape = kBackwardSplitShapes[i];
    const std::int64_t pieces = divide_up(packs, shape.threads * shape.packs);
    if (pieces > device.multiprocessors) continue;
    if (!exists(shape, device.room, elements)) continue;
    return plan(BackwardKernel::split, i, shape.threads, pieces,
                std::int64_t{device.multiprocessors} * shape.blocks / pieces, 1);
  }
  return plan(BackwardKernel::general, 0, threads_per_row(cols, device.wave), 1,
              kBlocksPerMultiprocessor * device.multiprocessors, kRowsPerPartial);
}

}  // namespace simple_layernorm::gpu
