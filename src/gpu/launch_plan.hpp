// From the problem to the launch: how many blocks of how many threads. Plain host code that knows
// no GPU header, so that it is tested without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

namespace simple_layernorm::gpu {

struct DeviceProperties {
  int wave = 32;            ///< lanes of a wave
  int multiprocessors = 1;  ///< compute units
};

struct LaunchPlan {
  std::int64_t blocks;
  int threads;  ///< a multiple of the wave, dependent on cols alone: it fixes the order of sums
};

/// A block works on one row at a time.
constexpr int kMostThreads = 256;

/// HIP demands blocks * threads < 2^32; a grid-stride loop over rows covers the rest.
constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 32) / kMostThreads - 1;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

inline int threads_per_row(std::int64_t cols, int wave) {
  const std::int64_t waves = divide_up(cols, wave);
  return static_cast<int>(std::clamp<std::int64_t>(waves * wave, wave, kMostThreads));
}

inline LaunchPlan plan_forward(std::int64_t rows, std::int64_t cols, const DeviceProperties& device) {
  return {std::min(rows, kMostBlocks), threads_per_row(cols, device.wave)};
}

/// The backward pass keeps a row of partial sums per block, so that the number of blocks is bounded
/// by the memory they may take: kRowsPerPartial rows of input stand against each.
constexpr std::int64_t kRowsPerPartial = 16;
constexpr std::int64_t kBlocksPerMultiprocessor = 8;

inline LaunchPlan plan_backward(std::int64_t rows, std::int64_t cols,
                                const DeviceProperties& device) {
  return {std::min(divide_up(rows, kRowsPerPartial),
                   kBlocksPerMultiprocessor * device.multiprocessors),
          threads_per_row(cols, device.wave)};
}

}  // namespace simple_layernorm::gpu
