// What the kernel files offer to the library around them: host functions that launch.
#pragma once

#include <cstddef>

#include "gpu/backward_plan.hpp"
#include "gpu/launch_plan.hpp"
#include "simple_layernorm/layer_norm.hpp"

namespace simple_layernorm::gpu {

/// Any dtype, any columns: the readable reference, and what the other kernels fall back on.
void launch_forward_general(const LayerNormForward& arguments, const DeviceProperties& device,
                            void* stream);

/// The kernels of plan_forward for an Element of float, Float16 or BFloat16.
template <class Element>
void launch_forward_lanes(const LayerNormForward& arguments, const ForwardPlan& plan, void* stream);
template <class Element>
void launch_forward_few_rows(const LayerNormForward& arguments, const ForwardPlan& plan,
                             const DeviceProperties& device, void* workspace, void* stream);
template <class Element>
void launch_forward_block(const LayerNormForward& arguments, const ForwardPlan& plan,
                          const DeviceProperties& device, void* stream);
template <class Element>
void launch_forward_split(const LayerNormForward& arguments, const ForwardPlan& plan,
                          const DeviceProperties& device, void* workspace, void* stream);

/// The same for the backward pass.
std::size_t general_backward_workspace(const LayerNormBackward& arguments,
                                       const BackwardPlan& plan);
void launch_backward_general(const LayerNormBackward& arguments, const BackwardPlan& plan,
                             void* workspace, void* stream);

/// The kernels of plan_backward for an Element of float, Float16 or BFloat16.
template <class Element>
void launch_backward_lanes(const LayerNormBackward& arguments, const BackwardPlan& plan,
                           void* workspace, void* stream);
template <class Element>
void launch_backward_block(const LayerNormBackward& arguments, const BackwardPlan& plan,
                           void* workspace, void* stream);
template <class Element>
void launch_backward_split(const LayerNormBackward& arguments, const BackwardPlan& plan,
                           const DeviceProperties& device, void* workspace, void* stream);

}  // namespace simple_layernorm::gpu
