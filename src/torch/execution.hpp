// Where a problem runs: it brings the CPU's kernels threads, the GPU's a device and its current
// stream, and both a workspace. What the operators above and the kernels below need not know.
#pragma once

#include <c10/core/Device.h>

#include "simple_layernorm/layer_norm.hpp"

namespace simple_layernorm::torch_ops {

void run(const LayerNormForward& arguments, c10::Device device);
void run(const LayerNormBackward& arguments, c10::Device device);

}  // namespace simple_layernorm::torch_ops
