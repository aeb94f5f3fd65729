// The rules by which two accesses are ordered: the same thread's, those on both sides of a barrier
// of one block, those of different launches. Relaxed atomics order nothing but themselves.

#include "shadow.hpp"

#include "hip/hip_runtime.h"

namespace emulation {

bool Shadow::is_ordered(const Mark& earlier, const Access& later) {
  if (earlier.block == kNone) return true;
  const bool same_block = earlier.block == later.block;
  if (same_block && (earlier.thread == later.thread || earlier.epoch < later.epoch)) return true;
  if (earlier.atomic_scope == 0 || later.atomic_scope == 0) return false;
  const int needed = same_block ? __HIP_MEMORY_SCOPE_WORKGROUP : __HIP_MEMORY_SCOPE_AGENT;
  return earlier.atomic_scope >= needed && later.atomic_scope >= needed;
}

void Shadow::add_reader(Mark& mark, const Access& access) {
  const bool first_since_barrier = mark.block == access.block && mark.epoch < access.epoch;
  if (mark.block == kNone || first_since_barrier) {
    mark = {access.block, access.thread, access.atomic_scope, access.epoch};
    return;
  }
  if (mark.block != access.block) mark.block = kSeveralBlocks;
  if (mark.block == kSeveralBlocks || mark.thread != access.thread) mark.thread = kSeveralThreads;
  if (access.atomic_scope < mark.atomic_scope) mark.atomic_scope = access.atomic_scope;
}

std::string Shadow::text(const Mark& mark) {
  if (mark.block == kSeveralBlocks) return "several blocks";
  const std::string block = "block " + std::to_string(mark.block);
  if (mark.thread == kSeveralThreads) return "several threads of " + block;
  return "thread " + std::to_string(mark.thread) + " of " + block;
}

void Shadow::initialise(std::size_t offset, std::size_t count) {
  for (std::size_t i = offset / 2; i < (offset + count + 1) / 2; ++i) cells_[i].initialised = true;
}

std::string Shadow::note(const Access& access, std::size_t offset, std::size_t count) {
  bool any_initialised = false, all_initialised = true;
  for (std::size_t i = offset / 2; i < (offset + count + 1) / 2; ++i) {
    Cell& cell = cells_[i];
    any_initialised |= cell.initialised;
    all_initialised &= cell.initialised;
    if (cell.grid != grids_launched) {
      cell.write = cell.read = {};
      cell.grid = grids_launched;
    }
    if (!is_ordered(cell.write, access)) {
      return (access.writes ? "writes what " : "reads what ") + text(cell.write) +
             " writes, and nothing orders the two";
    }
    if (access.writes && !is_ordered(cell.read, access)) {
      return "writes what " + text(cell.read) + " read, and nothing orders the two";
    }
    if (access.writes) {
      cell.write = {access.block, access.thread, access.atomic_scope, access.epoch};
      cell.read = {};
      cell.initialised = true;
    } else {
      add_reader(cell.read, access);
    }
  }
  const bool was_written = access.is_copy ? any_initialised : all_initialised;
  if (!access.writes && !was_written) return "reads what nobody has written";
  return {};
}

}  // namespace emulation
