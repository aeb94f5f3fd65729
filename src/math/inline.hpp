// How a function of this folder is compiled: always inlined, on the host and on the device.
// Inlining also keeps code of one CPU level out of every other: no out-of-line copy exists for the
// linker to choose.
#pragma once

#if defined(__HIP__) || defined(__CUDACC__)
#define SIMPLE_LAYERNORM_INLINE __host__ __device__ __forceinline__
#else
#define SIMPLE_LAYERNORM_INLINE inline __attribute__((always_inline))
#endif
