// What the kernel files offer to the library around them: one host function per pass.
#pragma once

#include <cstddef>

#include "gpu/launch_plan.hpp"
#include "simple_layernorm/layer_norm.hpp"

namespace simple_layernorm::gpu {

void launch_forward(const LayerNormForward& arguments, const DeviceProperties& device, void* stream);

std::size_t backward_workspace(const LayerNormBackward& arguments, const DeviceProperties& device);
void launch_backward(const LayerNormBackward& arguments, const DeviceProperties& device,
                     void* workspace, void* stream);

}  // namespace simple_layernorm::gpu
