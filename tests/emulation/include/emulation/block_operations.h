// What a kernel may do beyond its own wave: barriers, fences, atomics, shared memory.
#pragma once

#include <type_traits>

#include "emulation/types.h"

namespace emulation {

/// Returns when all threads of the block have called it.
void barrier(const Site& site);

/// This block's dynamic shared memory, of exactly the size given at the launch.
void* dynamic_shared_memory();

/// Atomic accesses to integers of 4 or 8 bytes. A load lets other threads run first, so that
/// polling ends. The memory order is none of their business: one thread runs at a time.
enum class Update { add, exchange };
std::uint64_t atomic_load(const void* address, int bytes, int scope, const Site& site);
void atomic_store(void* address, int bytes, std::uint64_t value, int scope, const Site& site);
std::uint64_t atomic_update(void* address, int bytes, Update update, std::uint64_t operand,
                            int scope, const Site& site);

/// Orders this thread's accesses to device memory; `scope` as in the constants below.
void fence(int scope);

/// Gives the processor to other threads.
void yield();

}  // namespace emulation

#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5

inline void __syncthreads(EMULATION_CALLER) { emulation::barrier({"__syncthreads", file, line}); }

inline void __threadfence_block() { emulation::fence(__HIP_MEMORY_SCOPE_WORKGROUP); }
inline void __threadfence() { emulation::fence(__HIP_MEMORY_SCOPE_AGENT); }
inline void __threadfence_system() { emulation::fence(__HIP_MEMORY_SCOPE_SYSTEM); }

inline void __builtin_amdgcn_s_sleep(int) { emulation::yield(); }
inline void __builtin_amdgcn_sched_barrier(int) {}

template <class T>
T __hip_atomic_load(const T* p, int, int scope, EMULATION_CALLER) {
  static_assert(std::is_integral<T>::value, "only integers are accessed atomically");
  return static_cast<T>(
      emulation::atomic_load(p, sizeof(T), scope, {"__hip_atomic_load", file, line}));
}

template <class T>
void __hip_atomic_store(T* p, T value, int, int scope, EMULATION_CALLER) {
  static_assert(std::is_integral<T>::value, "only integers are accessed atomically");
  emulation::atomic_store(p, sizeof(T), static_cast<std::uint64_t>(value), scope,
                          {"__hip_atomic_store", file, line});
}

template <class T>
T __hip_atomic_fetch_add(T* p, T value, int, int scope, EMULATION_CALLER) {
  static_assert(std::is_integral<T>::value, "sums of floats would depend on the order of threads");
  return static_cast<T>(emulation::atomic_update(p, sizeof(T), emulation::Update::add,
                                                 static_cast<std::uint64_t>(value), scope,
                                                 {"__hip_atomic_fetch_add", file, line}));
}

template <class T>
T __hip_atomic_exchange(T* p, T value, int, int scope, EMULATION_CALLER) {
  static_assert(std::is_integral<T>::value, "only integers are accessed atomically");
  return static_cast<T>(emulation::atomic_update(p, sizeof(T), emulation::Update::exchange,
                                                 static_cast<std::uint64_t>(value), scope,
                                                 {"__hip_atomic_exchange", file, line}));
}

template <class T>
T atomicAdd(T* p, T value, EMULATION_CALLER) {
  return __hip_atomic_fetch_add(p, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT, file, line);
}

template <class T>
T __builtin_nontemporal_load(const T* p) {
  return *p;
}
template <class T>
void __builtin_nontemporal_store(T value, T* p) {
  *p = value;
}

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
