// Where a thread keeps packs that it alone uses: registers, or shared memory where they would take
// too many.
#pragma once

#include "gpu/packs.hpp"

namespace simple_layernorm::gpu {

/// kCount packs by index: in shared memory that has room for kThreads threads, the block's or more,
/// or in registers, if kThreads is 0. In shared memory, pack i of neighbouring threads lies side by
/// side; `memory` is that of the whole block.
template <int kCount, int kThreads>
class PrivatePacks {
 public:
  explicit __device__ PrivatePacks(Pack* memory = nullptr) { place(memory); }
  __device__ void place(Pack* memory) { own_ = memory + threadIdx.x; }
  __device__ Pack& operator[](int i) { return own_[i * kThreads]; }
  __device__ const Pack& operator[](int i) const { return own_[i * kThreads]; }
  /// The same, but so that the compiler does not keep it from one pass to the next.
  __device__ const Pack& get(int i, Hide hide) const { return own_[i * kThreads + hide.zero]; }
  /// That of any thread, once a barrier has let it be seen.
  __device__ const Pack& of_thread(int thread, int i) const {
    return own_[i * kThreads + thread - static_cast<int>(threadIdx.x)];
  }

 private:
  Pack* own_;
};

template <int kCount>
class PrivatePacks<kCount, 0> {
 public:
  explicit __device__ PrivatePacks(Pack* = nullptr) {}
  __device__ void place(Pack*) {}
  __device__ Pack& operator[](int i) { return packs_[i]; }
  __device__ const Pack& operator[](int i) const { return packs_[i]; }
  __device__ const Pack& get(int i, Hide) const { return packs_[i]; }

 private:
  Pack packs_[kCount];
};

}  // namespace simple_layernorm::gpu
