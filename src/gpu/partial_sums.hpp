// The partial sums of the parameter gradients, between the kernels that make them and the one that
// adds them up.
#pragma once

#include "gpu/gpu_runtime.hpp"
#include "gpu/launch_plan.hpp"
#include "simple_layernorm/layer_norm.hpp"

namespace simple_layernorm::gpu {

/// A row of partial sums for each gradient and each group of a launch; null where a gradient is not
/// wanted.
template <class T>
struct PartialSums {
  T* weight = nullptr;  ///< [groups, stride]
  T* bias = nullptr;    ///< [groups, stride]
  std::int64_t groups;
  std::int64_t stride;  ///< columns, rounded up to whole packs

  PartialSums(const LayerNormBackward& a, std::int64_t groups, void* workspace)
      : groups(groups), stride(stride_of(a.cols)) {
    T* memory = static_cast<T*>(workspace);
    if (a.grad_weight != nullptr) {
      weight = memory;
      memory += groups * stride;
    }
    if (a.grad_bias != nullptr) bias = memory;
  }

  /// Those of one group.
  SIMPLE_LAYERNORM_INLINE T* weight_row(std::int64_t group) const {
    return weight != nullptr ? weight + group * stride : nullptr;
  }
  SIMPLE_LAYERNORM_INLINE T* bias_row(std::int64_t group) const {
    return bias != nullptr ? bias + group * stride : nullptr;
  }

  /// What they take of a workspace.
  static std::size_t bytes(const LayerNormBackward& a, std::int64_t groups) {
    const std::int64_t wanted = (a.grad_weight != nullptr) + (a.grad_bias != nullptr);
    return static_cast<std::size_t>(wanted * groups * stride_of(a.cols)) * sizeof(T);
  }

 private:
  static std::int64_t stride_of(std::int64_t cols) { return divide_up(cols, 4) * 4; }
};

/// Queues the sums over all groups, in fixed order, into grad_weight and grad_bias.
template <class T>
void launch_sum(const LayerNormBackward& arguments, const PartialSums<T>& partial_sums,
                void* stream);

}  // namespace simple_layernorm::gpu
