// The state of a running grid: its resident blocks, their threads, and what each waits for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fiber.hpp"
#include "hip/hip_runtime.h"
#include "memory.hpp"

namespace emulation {

enum class State { ready, polling, at_wave_operation, at_barrier, finished };

struct Thread {
  Fiber fiber;
  uint3 index;
  int linear;  ///< within the block
  State state;
  Site site;  ///< of the operation it waits at, or waited at last

  std::uint64_t brought;  ///< to a wave operation
  std::uint64_t shown;    ///< of what it brought, when all had come
  std::uint64_t came;     ///< lanes at the last wave operation
};

struct Block {
  explicit Block(const Launch& launch, std::int64_t linear);

  uint3 index;
  std::int64_t linear;  ///< within the grid
  std::vector<Thread> threads;
  SharedMemory shared;
  unsigned barriers_passed = 0;

  bool finished() const;
};

/// The launch, block and thread that run now; null outside of them.
inline const Launch* current_launch = nullptr;
inline Block* current_block = nullptr;
inline Thread* current_thread = nullptr;

/// Steps of the running grid that bring it nearer to its end: while they stand still, it only
/// polls.
inline std::int64_t progress = 0;

/// Whether kernels of other streams stay behind what is queued now: see hipStreamWaitEvent.
inline bool is_in_order = false;

/// Ends the current thread's turn; returns when it gets the next one.
void wait_as(State state, const Site& site);

/// Lets the lanes of waves go on whose members all wait. Returns whether there were any.
bool release_waves(Block& block);

}  // namespace emulation
