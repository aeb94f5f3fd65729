// Stands in for HIP's own header, so that an ordinary C++17 compiler accepts the unchanged .hip
// files. They then run on the CPU, a fiber per thread of a block; tests/emulation/runtime does
// that. SIMPLE_LAYERNORM_EMULATED_WAVE, 32 or 64, says how many lanes a wave has.
#pragma once

#include <math.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#ifndef SIMPLE_LAYERNORM_EMULATED_WAVE
#error "expected SIMPLE_LAYERNORM_EMULATED_WAVE to be 32 or 64"
#endif

// The attribute makes the compiler list the addresses of all kernels in a section of its own: the
// runtime reads from it which instances exist, so that one never launched is noticed.
#define __global__ __attribute__((noinline, patchable_function_entry(1, 0)))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

// Shared memory is a static variable, so that AddressSanitizer sees its bounds. The linker collects
// all of them in one region (shared_memory.ld), of which the runtime keeps a copy per block.
// `extern __shared__` cannot be expressed: kernels declare dynamic shared memory by a macro.
#define __shared__ static
#define EMULATION_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(emulation::dynamic_shared_memory())

#include "emulation/types.h"

#include "emulation/block_operations.h"
#include "emulation/runtime_api.h"
#include "emulation/wave_operations.h"

using std::max;
using std::min;
