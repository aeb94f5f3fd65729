// What device code of HIP and CUDA calls by different names: the wave, its lanes, words that blocks
// share, conversions. launch.hpp has the same for the host.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__) && !defined(__HIP__)
#include <cuda_runtime.h>
#else
#include <hip/hip_runtime.h>
#endif

// After the runtime, whose __host__ and __device__ it uses.
#include "gpu/launch_plan.hpp"
#include "math/bits16.hpp"

namespace simple_layernorm::gpu {

// Lanes of a wave, a constant in device code. warpSize is none since ROCm 7, and the host must ask
// the device's properties instead: one build may hold kernels for both sizes.
#if defined(SIMPLE_LAYERNORM_EMULATED_WAVE)
constexpr int kWave = SIMPLE_LAYERNORM_EMULATED_WAVE;
#elif defined(__GFX9__)
constexpr int kWave = 64;
#else
constexpr int kWave = 32;
#endif

// Lanes of the waves that this build may meet: no kernel for others is compiled.
#if defined(SIMPLE_LAYERNORM_EMULATED_WAVE)
constexpr int kSmallestWave = SIMPLE_LAYERNORM_EMULATED_WAVE;
constexpr int kLargestWave = SIMPLE_LAYERNORM_EMULATED_WAVE;
#elif defined(__CUDACC__) && !defined(__HIP__)
constexpr int kSmallestWave = 32;
constexpr int kLargestWave = 32;
#else
constexpr int kSmallestWave = 32;
constexpr int kLargestWave = 64;
#endif

/// Second argument of __launch_bounds__ for kernels that need many registers. CUDA: how many blocks
/// a multiprocessor must have room for, one less for kernels that need more. HIP: how many waves a
/// SIMD must; one leaves 512 registers on CDNA, two 256. In parentheses there: HIP's macro takes
/// the commas for its own.
template <int kThreads, int kBlocks, bool kNeedsMore>
#if defined(__CUDACC__) && !defined(__HIP__)
constexpr int kResident = kNeedsMore && kBlocks > 1 ? kBlocks - 1 : kBlocks;
#else
constexpr int kResident = kThreads > 128 ? 2 : 1;
#endif

// What the devices of a build have room for (see Room), whether its kernels keep numbers in shared
// memory, and whether 16 bytes at an address that is no multiple of 16 are loaded by one
// instruction.
#if defined(SIMPLE_LAYERNORM_EMULATED_WAVE)
constexpr bool kKeepsInSharedMemory = kWave == 32;
constexpr bool kMovesUnalignedPacks = kWave == 64;
constexpr Room kLeastRoom = kWave == 32 ? Room::registers_256 : Room::registers_512;
constexpr Room kMostRoom = kWave == 32 ? Room::shared_memory : Room::registers_512;
#elif defined(__CUDACC__) && !defined(__HIP__)
constexpr bool kKeepsInSharedMemory = true;
constexpr bool kMovesUnalignedPacks = false;
constexpr Room kLeastRoom = Room::registers_512;
constexpr Room kMostRoom = Room::shared_memory;
#else
constexpr bool kKeepsInSharedMemory = false;
constexpr bool kMovesUnalignedPacks = true;
constexpr Room kLeastRoom = Room::registers_256;
constexpr Room kMostRoom = Room::registers_512;
#endif

/// Whether kernels whose blocks wait for each other can do without: see Part.
#if defined(__CUDACC__) && !defined(__HIP__)
constexpr bool kRunsInParts = false;
#else
constexpr bool kRunsInParts = true;
#endif

/// Whether loads can ask to stay in the L2 cache: see load_lasting.
#if defined(__CUDACC__) && !defined(__HIP__)
constexpr bool kLoadsLasting = true;
#else
constexpr bool kLoadsLasting = false;
#endif

/// Whether multiprocessors run more than 1024 threads at a time: those of compute capability 7.5 do
/// not. AMD's count otherwise, see kResident.
#if defined(__CUDA_ARCH__)
constexpr bool kRunsManyThreads = __CUDA_ARCH__ >= 800;
#else
constexpr bool kRunsManyThreads = false;
#endif

// A build for several devices compiles each kernel for all of them: those that want more room than
// the device has are empty.
#if defined(__AMDGCN__) && !defined(__GFX9__)
constexpr Room kRoom = Room::registers_256;
#else
constexpr Room kRoom = kMostRoom;
#endif

/// For a lambda that is called in several places with variables that must stay in registers.
#define SIMPLE_LAYERNORM_INLINED __attribute__((always_inline))

/// The shared memory that a launch adds to what a kernel declares.
#if defined(SIMPLE_LAYERNORM_EMULATED_WAVE)
#define SIMPLE_LAYERNORM_DYNAMIC_SHARED(type, name) EMULATION_DYNAMIC_SHARED(type, name)
#else
#define SIMPLE_LAYERNORM_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

// Conversions of 16-bit floats by the machine's instructions, two results to a 32-bit word; where
// it has none, or is emulated, by math/bits16.hpp. Both round to nearest even.
#if defined(__CUDA_ARCH__)
__device__ inline float float_from_float16(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ inline std::uint32_t pair_of_float16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  std::uint16_t first, second;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(first) : "f"(low));
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(second) : "f"(high));
  return first | std::uint32_t{second} << 16;
#endif
}
__device__ inline std::uint32_t pair_of_bfloat16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  return to_bfloat16(low).bits | std::uint32_t{to_bfloat16(high).bits} << 16;
#endif
}
#else
#if defined(__AMDGCN__)
__device__ inline float float_from_float16(std::uint16_t bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
__device__ inline std::uint32_t pair_of_float16(float low, float high) {
  const auto bits = [](float value) {
    return std::uint32_t{__builtin_bit_cast(std::uint16_t, static_cast<_Float16>(value))};
  };
  return bits(low) | bits(high) << 16;
}
#else
__device__ inline float float_from_float16(std::uint16_t bits) { return to_float(Float16{bits}); }
__device__ inline std::uint32_t pair_of_float16(float low, float high) {
  return to_float16(low).bits | std::uint32_t{to_float16(high).bits} << 16;
}
#endif
__device__ inline std::uint32_t pair_of_bfloat16(float low, float high) {
  return to_bfloat16(low).bits | std::uint32_t{to_bfloat16(high).bits} << 16;
}
#endif

// Lanes of a wave exchange a value, or a condition. All lanes must take part.
#if defined(__CUDACC__) && !defined(__HIP__)
template <class T>
__device__ T shuffle_xor(T value, int distance) {
  return __shfl_xor_sync(0xffffffffu, value, distance);
}
/// From lane `lane` modulo kLanes of the same group of kLanes.
template <int kLanes, class T>
__device__ T shuffle_from(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane, kLanes);
}
__device__ inline bool any_lane(bool condition) { return __any_sync(0xffffffffu, condition) != 0; }
#else
template <class T>
__device__ T shuffle_xor(T value, int distance) {
  return __shfl_xor(value, distance);
}
template <int kLanes, class T>
__device__ T shuffle_from(T value, int lane) {
  return __shfl(value, lane, kLanes);
}
__device__ inline bool any_lane(bool condition) { return __any(condition) != 0; }
#endif

/// Loads what should leave the L2 cache after all else: see keeps_cached.
__device__ inline uint4 load_lasting(const uint4* p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint64_t policy;
  uint4 v;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p), "l"(policy));
  return v;
#else
  return *p;
#endif
}

/// Loads what the same multiprocessor will want again soon: it should leave the L1 cache last.
__device__ inline uint4 load_kept(const uint4* p) {
#if defined(__CUDA_ARCH__)
  uint4 v;
  asm volatile("ld.global.L1::evict_last.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
#else
  return *p;
#endif
}

/// A store of 16 bytes that stays one: of words that were moved between lanes, the compiler makes
/// four stores of 4. To memory that the kernel does not read: no load waits for it.
__device__ inline void store_whole(uint4* p, const uint4& words) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(p), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w));
#else
  *p = words;
#endif
}

/// Asks for the cache line at p to be brought to the L2 cache.
__device__ inline void prefetch(const void* p) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" : : "l"(p));
#else
  __builtin_prefetch(p);
#endif
}

// Blocks of a grid hand over a word of 64 bits. Relaxed: the word is the whole message, nothing
// else is ordered by it.
#if defined(__CUDACC__) && !defined(__HIP__)
__device__ inline std::uint64_t load_shared_word(const std::uint64_t* p) {
  std::uint64_t word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(p) : "memory");
  return word;
}
__device__ inline void store_shared_word(std::uint64_t* p, std::uint64_t word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(p), "l"(word) : "memory");
}
__device__ inline std::uint64_t add_shared_word(std::uint64_t* p, std::uint64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(p), value);
}
#else
__device__ inline std::uint64_t load_shared_word(const std::uint64_t* p) {
  return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
__device__ inline void store_shared_word(std::uint64_t* p, std::uint64_t word) {
  __hip_atomic_store(p, word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
__device__ inline std::uint64_t add_shared_word(std::uint64_t* p, std::uint64_t value) {
  return __hip_atomic_fetch_add(p, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
#endif

/// First of all in every kernel, before it reads or writes memory: waits for the work queued before
/// it, and lets that queued after it come as far as here. See launch.
__device__ inline void await_earlier_work() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" : : : "memory");
#endif
}

}  // namespace simple_layernorm::gpu
