// What a kernel may do beyond its own wave: barriers, fences, atomics, shared memory.
#pragma once

#include <cstring>

#include "emulation/types.h"

namespace emulation {

/// Returns when all threads of the block have called it.
void barrier(const Site& site);

/// This block's dynamic shared memory, of exactly the size given at the launch.
void* dynamic_shared_memory();

enum class Access { load, store, exchange };

/// Announces an atomic access. Every load lets other threads run first, so that polling ends.
void before_atomic(const void* address, int bytes, Access access, int order, int scope,
                   const Site& site);

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

/// The memory order decides nothing here: one thread runs at a time. It matters to the search for
/// races, which knows that a relaxed access orders no other.
template <class T>
T __hip_atomic_load(const T* p, int order, int scope, EMULATION_CALLER) {
  emulation::before_atomic(p, sizeof(T), emulation::Access::load, order, scope,
                           {"__hip_atomic_load", file, line});
  T value;
  __atomic_load(p, &value, __ATOMIC_SEQ_CST);
  return value;
}

template <class T>
void __hip_atomic_store(T* p, T value, int order, int scope, EMULATION_CALLER) {
  emulation::before_atomic(p, sizeof(T), emulation::Access::store, order, scope,
                           {"__hip_atomic_store", file, line});
  __atomic_store(p, &value, __ATOMIC_SEQ_CST);
}

template <class T>
T __hip_atomic_fetch_add(T* p, T value, int order, int scope, EMULATION_CALLER) {
  emulation::before_atomic(p, sizeof(T), emulation::Access::exchange, order, scope,
                           {"__hip_atomic_fetch_add", file, line});
  return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);
}

template <class T>
T __hip_atomic_exchange(T* p, T value, int order, int scope, EMULATION_CALLER) {
  emulation::before_atomic(p, sizeof(T), emulation::Access::exchange, order, scope,
                           {"__hip_atomic_exchange", file, line});
  T before;
  __atomic_exchange(p, &value, &before, __ATOMIC_SEQ_CST);
  return before;
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
