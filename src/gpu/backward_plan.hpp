// From the problem to the launch of a backward pass, as launch_plan.hpp does for the forward pass.
//
// A team of threads works on one row after the other and keeps the sums of its columns' parameter
// gradients; each block (or group of blocks that share rows) ends with one row of partial sums.
// Cols, the element's size and the device alone decide how a row is shared out, and with it the
// bits of grad_input; rows only decide how many teams there are.
//
// The numbers of all shapes are estimates: no GPU has run these kernels yet. Measure them with
// python -m simple_layernorm bench --cases backward
#pragma once

#include "gpu/launch_plan.hpp"

namespace simple_layernorm::gpu {

// The general kernel: a block per row, any columns. Its partial sums lie in memory, so that
// kRowsPerPartial rows of input stand against each row of them.
constexpr std::int64_t kRowsPerPartial = 16;
constexpr std::int64_t kBlocksPerMultiprocessor = 8;

// Narrow rows: teams of some lanes of a wave. The first shape that holds a row is taken.
struct BackwardLanesShape {
  int lanes;   ///< of a team, no more than the wave
  int packs;   ///< of 16 bytes, per lane
  int rows;    ///< that a team reads at a time
  int blocks;  ///< per multiprocessor
};
constexpr BackwardLanesShape kBackwardLanesShapes[] = {
    {8, 1, 2, 4}, {16, 1, 2, 4}, {32, 1, 2, 4}, {32, 2, 1, 3}, {32, 3, 1, 2}, {64, 2, 1, 3},
};
constexpr int kBackwardLanesShapeCount = static_cast<int>(std::size(kBackwardLanesShapes));
constexpr int kBackwardLanesThreads = 128;

// Wider rows: the team is a block, of as many waves as the row needs. Its threads keep sums and
// weights in shared memory where that pays and the device is NVIDIA's, else in registers.
struct BackwardBlockShape {
  int packs;    ///< of 16 bytes, per thread
  int threads;  ///< of a block at most
  int blocks;   ///< of that size per multiprocessor; more if they are smaller
  bool uses_shared_memory;
  bool takes_wide_grads;  ///< whether registers suffice for float32 beside 16-bit elements
  Room needs;
};
constexpr BackwardBlockShape kBackwardBlockShapes[] = {
    {2, 128, 5, true, true, Room::registers_256},
    {4, 128, 3, true, true, Room::registers_512},
    {2, 512, 1, false, false, Room::registers_256},
    {4, 512, 1, true, false, Room::shared_memory}};
constexpr int kBackwardBlockShapeCount = static_cast<int>(std::size(kBackwardBlockShapes));

// Rows beyond these: groups of blocks, a piece of the row each, that hand over their sums. The
// blocks of the lagging kind work on a row while the sums of the one before are on their way. The
// others hold more of a row each, for rows that would need more blocks than there are
// multiprocessors: the blocks of a row wait for each other, so that all must run at the same time.
struct BackwardSplitShape {
  int packs;
  int threads;  ///< of every block
  int blocks;   ///< per multiprocessor
  bool uses_shared_memory;
  bool takes_wide_grads;
  Room needs;
  bool lags;
};
constexpr BackwardSplitShape kBackwardSplitShapes[] = {
    {4, 128, 3, true, true, Room::registers_512, true},
    {2, 256, 1, false, true, Room::registers_256, true},
    {4, 512, 1, true, false, Room::shared_memory, false},
    {2, 512, 1, false, true, Room::registers_256, false}};
constexpr int kBackwardSplitShapeCount = static_cast<int>(std::size(kBackwardSplitShapes));

/// Whether a device can have a shape, for grads of the elements' size or wider ones.
template <class Shape>
constexpr bool exists(const Shape& shape, Room room, bool is_wide) {
  return room >= shape.needs && (!is_wide || shape.takes_wide_grads);
}

/// Whether the plan ever takes shapes[index] on devices from `least` room to `most`: it takes the
/// first that suffices.
template <class Shapes>
constexpr bool is_reachable(const Shapes& shapes, int index, Room least, Room most, bool is_wide) {
  const int capacity = shapes[index].packs * shapes[index].threads;
  for (int i = 0; i < index; ++i) {
    const bool suffices = shapes[i].packs * shapes[i].threads >= capacity;
    if (suffices && exists(shapes[i], least, is_wide)) return false;
  }
  return exists(shapes[index], most, is_wide);
}

enum class BackwardKernel { general, lanes, block, split };

struct BackwardPlan {
  BackwardKernel kernel = BackwardKernel::general;
  int shape = 0;            ///< index in the kernel's list of shapes
  int threads = 0;          ///< of a block
  int pieces = 1;           ///< blocks that share a row
  std::int64_t groups = 0;  ///< of so many blocks, each with its own partial sums
};

/// grad_size is that of an element of grad_output.
inline BackwardPlan plan_backward(std::int64_t rows, std::int64_t cols, int element_size,
                                  int grad_size, const DeviceProperties& device) {
  const std::int64_t packs = divide_up(cols * element_size, 16);
  const auto plan = [&](BackwardKernel kernel, int shape, int threads, std::int64_t pieces,
                        std::int64_t most_groups, std::int64_t rows_at_a_time) {
    const std::int64_t groups = std::min(divide_up(rows, rows_at_a_time), most_groups);
    return BackwardPlan{kernel, shape, threads, static_cast<int>(pieces), groups};
  };
  for (int i = 0; element_size < 8 && i < kBackwardLanesShapeCount; ++i) {
    const BackwardLanesShape& shape = kBackwardLanesShapes[i];
    if (shape.lanes > device.wave || packs > shape.lanes * shape.packs) continue;
    return plan(BackwardKernel::lanes, i, kBackwardLanesThreads, 1,
                std::int64_t{device.multiprocessors} * shape.blocks,
                kBackwardLanesThreads / shape.lanes * shape.rows);
  }
  for (int i = 0; element_size < 8 && i < kBackwardBlockShapeCount; ++i) {
    const BackwardBlockShape& shape = kBackwardBlockShapes[i];
    if (packs > shape.threads * shape.packs) continue;
    if (!exists(shape, device.room, grad_size > element_size)) continue;
    const int threads = static_cast<int>(divide_up(packs, shape.packs * device.wave)) * device.wave;
    return plan(BackwardKernel::block, i, threads, 1,
                std::int64_t{device.multiprocessors} * (shape.threads * shape.blocks / threads), 1);
  }
  for (int i = 0; element_size < 8 && i < kBackwardSplitShapeCount; ++i) {
    const BackwardSplitShape& shape = kBackwardSplitShapes[i];
    const std::int64_t pieces = divide_up(packs, shape.threads * shape.packs);
    if (pieces > device.multiprocessors) continue;
    if (!exists(shape, device.room, grad_size > element_size)) continue;
    return plan(BackwardKernel::split, i, shape.threads, pieces,
                std::int64_t{device.multiprocessors} * shape.blocks / pieces, 1);
  }
  return plan(BackwardKernel::general, 0, threads_per_row(cols, device.wave), 1,
              kBlocksPerMultiprocessor * device.multiprocessors, kRowsPerPartial);
}

}  // namespace simple_layernorm::gpu
