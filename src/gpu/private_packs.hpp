// Where a thread keeps packs that it alone uses: registers, or shared memory where they would take
// too many.
#pragma once

#include "gpu/packs.hpp"

namespace simple_layernorm::gpu {

/// kCount packs by index. In shared memory, pack i of neighbouring threads lies side by side;
/// `memory` is that of the whole block. kThreads: how many use it, 0: all threads of the block.
template <int kCount, bool kInSharedMemory, int kThreads = 0>
class PrivatePacks {
 public:
  explicit __device__ PrivatePacks(Pack* memory = nullptr) { place(memory); }
  __device__ void place(Pack* memory) { own_ = memory + threadIdx.x; }
  __device__ Pack& operator[](int i) { return own_[i * threads()]; }
  __device__ const Pack& operator[](int i) const { return own_[i * threads()]; }

 private:
  static __device__ int threads() { return kThreads > 0 ? kThreads : blockDim.x; }

  Pack* own_;
};

template <int kCount, int kThreads>
class PrivatePacks<kCount, false, kThreads> {
 public:
  explicit __device__ PrivatePacks(Pack* = nullptr) {}
  __device__ void place(Pack*) {}
  __device__ Pack& operator[](int i) { return packs_[i]; }
  __device__ const Pack& operator[](int i) const { return packs_[i]; }

 private:
  Pack packs_[kCount];
};

}  // namespace simple_layernorm::gpu
