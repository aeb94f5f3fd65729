// The emulated device: its limits, and what they allow to run at once.
#pragma once

#include "hip/hip_runtime.h"

namespace emulation {

/// Runs all blocks of a grid, at most this many at a time.
void run_grid(const Launch& launch, int resident_blocks);

}  // namespace emulation
