// Where a thread keeps packs that it alone uses: registers, or shared memory where they would take
// too many.
#pragma once

#include "gpu/packs.hpp"

namespace simple_layernorm::gpu {

/// kCount packs by index. In shared memory, pack i of neighbouring threads lies side by side;
/// `memory` is that of the whole block.
template <int kCount, bool kInSharedMemory>
class PrivatePacks {
 public:
  explicit __device__ PrivatePacks(Pack* memory) : own_(memory + threadIdx.x) {}
  __device__ Pack& operator[](int i) { return own_[i * blockDim.x]; }
  __device__ const Pack& operator[](int i) const { return own_[i * blockDim.x]; }

 private:
  Pack* own_;
};

template <int kCount>
class PrivatePacks<kCount, false> {
 public:
  explicit __device__ PrivatePacks(Pack*) {}
  __device__ Pack& operator[](int i) { return packs_[i]; }
  __device__ const Pack& operator[](int i) const { return packs_[i]; }

 private:
  Pack packs_[kCount];
};

}  // namespace simple_layernorm::gpu
