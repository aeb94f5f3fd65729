// Whether accesses to memory are watched, and the way for atomic ones to be.
#pragma once

#include <cstddef>

#include "hip/hip_runtime.h"

namespace emulation {

/// Whether the kernel files were compiled so that their accesses can be seen.
bool watches_accesses();

/// Ends the program if this atomic access races with a plain one, or its scope is too small.
void note_atomic(const void* address, std::size_t bytes, bool writes, int scope, const Site& site);

}  // namespace emulation
