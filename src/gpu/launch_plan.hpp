// From the problem to the launch: which kernel, in which shape, how many blocks. Plain host code
// that knows no GPU header, so that it is tested without a GPU.
//
// The order in which a row's values are added depends on cols, the element's size and the wave
// alone; how many rows there are only decides who does the work.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>

namespace simple_layernorm::gpu {

/// Where a thread of a device can keep many numbers from row to row.
enum class Room {
  none,           ///< for the general kernels alone
  registers_256,  ///< AMD RDNA, other NVIDIA
  registers_512,  ///< AMD CDNA; NVIDIA's 255 registers with kMediumSharedBytes for a block
  shared_memory,  ///< NVIDIA with kLargeSharedBytes for a block
};
constexpr std::size_t kLargeSharedBytes = 226 << 10;  ///< H100, H200: 227 KiB
constexpr std::size_t kMediumSharedBytes = 96 << 10;  ///< compute capability 8.6, 8.9: 99 KiB

struct DeviceProperties {
  int wave = 32;            ///< lanes of a wave
  int multiprocessors = 1;  ///< compute units
  Room room = Room::registers_256;
  std::int64_t l2_bytes = 0;  ///< of the L2 cache, or 0 if loads cannot ask to stay there
};

/// The room to plan for on a device that has `room`, if the environment chooses a plan to measure:
/// "portable", what AMD CDNA devices take (at most 64 KiB of shared memory); "general", the kernels
/// that read a row from memory again for each pass.
inline Room chosen_room(const char* plan, Room room) {
  const std::string name = plan == nullptr || *plan == '\0' ? "native" : plan;
  if (name == "native") return room;
  if (name == "portable") return std::min(room, Room::registers_512);
  if (name == "general") return Room::none;
  throw std::invalid_argument(
      "simple_layernorm: SIMPLE_LAYERNORM_PLAN: expected native, portable or general, but got " +
      name);
}

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Packs of 16 bytes in a row, one at least; the few columns after the last go to lanes of their
/// own. That a row of 773 or 4097 columns is not given the shape for a pack more is worth, in
/// bfloat16 on an H200 (2026-11-30, forward over copy), 0.716 instead of 0.602 and 0.649 instead of
/// 0.543.
constexpr std::int64_t whole_packs(std::int64_t cols, int element_size) {
  return std::max<std::int64_t>(cols * element_size / 16, 1);
}

constexpr bool ends_within_pack(std::int64_t cols, int element_size) {
  return cols * element_size % 16 != 0;
}

/// HIP demands blocks * threads < 2^32, and a block has 1024 threads at most; a launch of more rows
/// is cut into several.
constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 22) - 1;

// The general kernels: a block per row, any columns.
constexpr int kMostThreads = 256;

inline int threads_per_row(std::int64_t cols, int wave) {
  return static_cast<int>(
      std::clamp<std::int64_t>(divide_up(cols, wave) * wave, wave, kMostThreads));
}

// The lanes kernel: a group of lanes per row. The first shape that holds a row is taken.
struct LanesShape {
  int lanes;           ///< per row, no more than the wave
  int packs;           ///< of 16 bytes, per lane
  int rows;            ///< that a group reads before it uses the first: a power of two
  int unaligned_rows;  ///< the same where lanes exchange parts of packs
};
// Unaligned bfloat16 rows of 509, 773, 1001 columns, two at a time and one: 0.819, 0.910, 0.913 and
// 0.715, 0.836, 0.890 (H200, torch 2.11, 2026-11-30, 2^28 elements, forward over copy; two rows
// centred on their first value, as only those of 509 columns now are).
constexpr LanesShape kLanesShapes[] = {
    {8, 1, 4, 4},  {16, 1, 4, 4}, {16, 2, 2, 2}, {32, 2, 2, 2}, {32, 3, 1, 2}, {32, 4, 1, 2},
    {64, 3, 1, 1}, {64, 4, 1, 1}, {32, 5, 1, 1}, {32, 6, 1, 1}, {32, 7, 1, 1}, {32, 8, 1, 1},
};
constexpr int kLanesShapeCount = static_cast<int>(std::size(kLanesShapes));

/// Threads of a block, whose lanes read so many packs each. Small blocks are faster unless there
/// are so many that starting them takes as long: an H200 starts one in 1.2 ns. H200, torch 2.11,
/// 2026-11-30, 2^28 elements, forward over copy, 64 threads and 128: bfloat16 64, 256, 768, 1024
/// columns 1.009 and 0.977, 1.011 and 0.984, 1.001 and 0.996, 1.002 and 0.983; float32 512 columns
/// 0.998 and 0.978, but 64 columns (2 packs) 0.799 and 1.001. Unaligned rows have blocks of 128
/// threads: bfloat16 1001 columns 0.877 and 0.907.
constexpr int lanes_threads(int packs, bool is_aligned) {
  return is_aligned && packs >= 3 ? 64 : 128;
}

/// A row of 32-bit elements has half the values to compute with, and half the rows of it hide that.
/// H200, torch 2.11, 2026-11-30, 2^28 elements, forward over copy, medians, rows as in the table,
/// half as many: float32 64 columns 0.969, 0.998, 128 columns 0.980, 0.998; bfloat16 64 columns
/// 0.977, 0.928, 256 columns 0.982, 0.946, 512 columns 1.013, 0.947.
constexpr int lanes_rows(const LanesShape& shape, int element_size, bool is_aligned) {
  const int rows = is_aligned ? shape.rows : shape.unaligned_rows;
  return element_size == 2 ? rows : std::max(rows / 2, 1);
}

/// How many packs a lane may have. A block of two waves has more in flight, but a segment's two
/// ends cost where rows are not aligned. H200, torch 2.11, 2026-11-30, 2^28 elements, forward over
/// copy, one wave and two: float32 640 columns 0.992, 0.953, 768 columns 0.986, 1.005, 1001 columns
/// 0.981, 0.957, 773 columns 0.983, 0.836; bfloat16 1280 columns 0.987, 0.792, 1536 columns 0.994,
/// 0.909, 2048 columns 0.972, 0.969 (float16 0.984, 1.012), 2001 columns 0.913, 0.769.
constexpr int most_lane_packs(int element_size, bool has_tail) {
  if (has_tail) return 8;
  return element_size == 2 ? 7 : 5;
}

/// Index of the shape for rows of so many packs, or -1.
constexpr int lanes_shape(std::int64_t packs, int wave, int element_size, bool has_tail) {
  for (int i = 0; i < kLanesShapeCount; ++i) {
    const LanesShape& shape = kLanesShapes[i];
    if (shape.lanes > wave || shape.packs > most_lane_packs(element_size, has_tail)) continue;
    if (packs <= shape.lanes * shape.packs) return i;
  }
  return -1;
}

// The block kernel: a block per row or per piece of it. A wave holds a power-of-two run of segments
// of wave * packs packs. Rows of eight and more segments of the widest kind all have that kind, so
// that they can be shared out among any power of two of waves and blocks.
struct BlockShape {
  int packs;
  int segments;
};
constexpr BlockShape kBlockShapes[] = {{3, 1}, {4, 1}, {5, 1}, {6, 1}, {8, 1}, {8, 2}};
constexpr int kBlockShapeCount = static_cast<int>(std::size(kBlockShapes));
constexpr int kWideShape = 4;  ///< first shape with the segments of wide rows
constexpr int kWidePacks = kBlockShapes[kWideShape].packs;

// H200, torch 2.11, 2026-11-29, 2^28 elements, forward over copy, medians. bfloat16: 4096 columns
// by 4 waves of 4 packs 0.945, by 2 of 8 0.980; 8192 columns by 8 of 4 0.903, by 4 of 8 0.981.
// float32: 4096 columns by 8 of 4 0.975.
constexpr int kMostPacks16 = 8;  ///< of a thread, 16-bit elements, while more waves are left
constexpr int kMostPacks32 = 6;  ///< the same, 32-bit elements
/// The same where rows are not aligned: 4097 columns by 4 waves of 8 packs 0.978, by 8 of 4 0.888
/// (2026-11-30).
constexpr int kMostPacks32WithTail = 8;

// Never 16 waves: blocks of 512 threads with half the registers reach 0.68 (bfloat16, 32768
// columns) and 0.71 (float32, 16384) where 8 waves of two segments reach 0.947 and 0.955.
constexpr int kMostWaves = 8;

// The split kernel: several blocks per row, a segment of the widest kind to a wave, and each block
// alone on its multiprocessor. The row that waits for the others' moments lies in shared memory,
// with weights and as many biases as there is room for; or in registers, and these then come from
// cache for every row.
struct SplitShape {
  int waves;  ///< of a block, a power of two
  bool uses_shared_memory;
  Room needs;
};
// H200, torch 2.11, 2026-11-30, 2^28 elements, forward over copy, medians, float32 32768, 65536,
// 131072 columns, bfloat16 65536, 131072: the first shape 0.932, 0.934, 0.917, 0.917, 0.910, two
// blocks of 8 waves 0.905, 0.904, 0.888, 0.890, 0.891, the second shape 0.788, 0.743, 0.669, 0.699,
// 0.667. What the first reaches without asking for the lines of the row after the next: 0.921,
// 0.921, 0.912, 0.913, 0.911; with the next row's loads after the sums of this one: 0.01 less.
constexpr SplitShape kSplitShapes[] = {
    {16, true, Room::shared_memory},
    {8, false, Room::registers_256},
};
constexpr int kSplitShapeCount = static_cast<int>(std::size(kSplitShapes));
constexpr int kMostPieces = 256;  ///< with 8 waves of 32 lanes, rows of 8 MiB

// The few-rows kernel: a row's segments over blocks of few waves while multiprocessors are left,
// but a row of eight segments to one block, which needs no messages.
//
// H200, torch 2.11, 2026-11-30, us, blocks of 1, 2, 4, 8 waves: float32 1 x 16384 7.6, 7.4, 7.8,
// 8.3, 1 x 65536 8.5 (2 waves), 8.3, 8.6, 1 x 262144 9.8 (4 waves), 9.8; bfloat16 1 x 65536 8.7,
// 8.7, 8.2, 8.7. By the split kernel's blocks 11.6, 12.1, 13.5 and 12.3.
constexpr int kFewRowsWaves = 4;

/// Whether the L2 cache should rather lose what the block kernel writes than what it reads: from
/// tensors of so many times its size on, of whose output nothing would be left there for the work
/// that follows. What else that work may find there, as its own weights, was not measured.
///
/// H200, torch 2.11, 2026-11-30, us, rows to stay and not, alone, before a copy of the
/// output, after a copy to the input: float32 4096 columns, 64 MiB 38.3 and 37.9, 73.3 and 72.3,
/// 70.5 and 68.2; 256 MiB 129.2 and 131.2, 258.0 and 261.3, 257.0 and 255.2; 512 MiB 251.9 and
/// 258.9, 511.8 and 516.5, 507.4 and 513.6. 2^28 elements, forward over copy, float32 2048, 4096,
/// 8192, 16384 columns 1.016 and 0.978, 1.019 and 0.984, 1.020 and 0.983, 1.015 and 0.992, bfloat16
/// 0.969 and 0.961, 1.021 and 0.988, 1.009 and 0.984, 1.003 and 0.996. The split kernel and the
/// backward pass gain nothing: float32 32768 columns 0.928 and 0.937.
constexpr int kLastingCaches = 8;
constexpr bool keeps_cached(std::int64_t rows, std::int64_t cols, int element_size,
                            const DeviceProperties& device) {
  return device.l2_bytes > 0 && rows * cols * element_size >= kLastingCaches * device.l2_bytes;
}

struct BlockChoice {
  int shape = -1;  ///< index in kBlockShapes, or -1
  int waves = 0;
};
/// For rows of so many packs that are less than eight segments of the widest kind.
constexpr BlockChoice block_choice(std::int64_t packs, int wave, int element_size, bool has_tail) {
  const int most_packs = element_size == 2 ? kMostPacks16
                         : has_tail        ? kMostPacks32WithTail
                                           : kMostPacks32;
  for (int waves = 2; waves <= kMostWaves; waves *= 2) {
    for (int i = 0; i <= kWideShape; ++i) {
      const int shape_packs = kBlockShapes[i].packs;
      if (shape_packs > most_packs && waves < kMostWaves) continue;
      if (packs <= shape_packs * waves * wave) return {i, waves};
    }
  }
  return {};
}

/// Whether rows with waves of this size, all aligned or not, ever satisfy is_taken. Shapes hold 8
/// packs or a multiple.
template <class IsTaken>
constexpr bool any_row(int wave, int element_size, bool are_aligned, IsTaken is_taken) {
  for (int packs = 1; packs <= kMostWaves * kWidePacks * wave; packs += packs < 8 ? 1 : 8) {
    if (is_taken(packs, wave, element_size, false)) return true;
    if (!are_aligned && is_taken(packs, wave, element_size, true)) return true;
  }
  return false;
}

/// Whether the plan ever takes a shape, so that its kernel is worth compiling.
constexpr bool takes_lanes_shape(int index, int wave, int element_size, bool are_aligned) {
  return any_row(wave, element_size, are_aligned,
                 [index](std::int64_t packs, int wave, int element_size, bool has_tail) {
                   return lanes_shape(packs, wave, element_size, has_tail) == index;
                 });
}
constexpr bool takes_block_shape(int index, int wave, int element_size, bool are_aligned) {
  return index >= kWideShape ||
         any_row(wave, element_size, are_aligned,
                 [index](std::int64_t packs, int wave, int element_size, bool has_tail) {
                   return lanes_shape(packs, wave, element_size, has_tail) < 0 &&
                          block_choice(packs, wave, element_size, has_tail).shape == index;
                 });
}

enum class ForwardKernel { general, lanes, few_rows, block, split };

struct ForwardPlan {
  ForwardKernel kernel = ForwardKernel::general;
  int shape = 0;          ///< index in kLanesShapes, kBlockShapes (block, few_rows) or kSplitShapes
  int waves = 0;          ///< of a block, but of the lanes kernel: see lanes_threads
  int pieces = 1;         ///< blocks that share a row
  bool in_parts = false;  ///< see plan_in_parts
};

/// Rows of at least eight segments of the wide kind: as many of them to a block as it takes, but
/// fewer if that leaves multiprocessors without work.
inline ForwardPlan plan_wide(std::int64_t rows, std::int64_t packs,
                             const DeviceProperties& device) {
  std::int64_t segments = kMostWaves;
  while (segments * device.wave * kWidePacks < packs) segments *= 2;

  for (int waves = segments == kMostWaves ? kMostWaves : kFewRowsWaves; waves <= kMostWaves;
       waves *= 2) {
    const std::int64_t pieces = segments / waves;
    if (rows * pieces > device.multiprocessors || pieces > waves * device.wave) continue;
    return {ForwardKernel::few_rows, kWideShape, waves, static_cast<int>(pieces)};
  }
  ForwardPlan plan;
  const auto keeps_busy = [&] { return rows * plan.pieces >= device.multiprocessors; };
  for (int i = 0; i < kSplitShapeCount; ++i) {
    const SplitShape& shape = kSplitShapes[i];
    const std::int64_t pieces = segments / shape.waves;
    // The blocks of a row wait for each other, so that all of them must run at the same time.
    const int most_pieces = std::min(kMostPieces, device.multiprocessors);
    if (device.room < shape.needs || pieces < 2 || pieces > most_pieces) continue;
    plan = {ForwardKernel::split, i, shape.waves, static_cast<int>(pieces)};
    if (keeps_busy()) break;
  }
  for (int shape = kWideShape; shape < kBlockShapeCount; ++shape) {
    if (segments != kMostWaves * kBlockShapes[shape].segments) continue;
    const ForwardPlan block{ForwardKernel::block, shape, kMostWaves, 1};
    if (plan.kernel == ForwardKernel::general || rows >= device.multiprocessors) plan = block;
  }
  return plan;
}

inline ForwardPlan plan_forward(std::int64_t rows, std::int64_t cols, int element_size,
                                const DeviceProperties& device) {
  if (element_size == 8 || device.room == Room::none) return {};
  const std::int64_t packs = whole_packs(cols, element_size);
  const bool has_tail = ends_within_pack(cols, element_size);
  const int shape = lanes_shape(packs, device.wave, element_size, has_tail);
  if (shape >= 0) return {ForwardKernel::lanes, shape};
  if (packs > (kMostWaves - 1) * kWidePacks * device.wave) return plan_wide(rows, packs, device);
  const BlockChoice choice = block_choice(packs, device.wave, element_size, has_tail);
  const bool has_few_rows = rows <= device.multiprocessors;
  return {has_few_rows ? ForwardKernel::few_rows : ForwardKernel::block, choice.shape, choice.waves,
          1};
}

/// For rows that blocks share where these may not wait for each other (see Part): by the few-rows
/// kernel, with a block for each piece of each row, which reads it for each part.
inline ForwardPlan plan_in_parts(const ForwardPlan& plan) {
  const int waves = std::min(plan.waves, kMostWaves);
  return {ForwardKernel::few_rows, kWideShape, waves, plan.pieces * plan.waves / waves, true};
}

}  // namespace simple_layernorm::gpu
