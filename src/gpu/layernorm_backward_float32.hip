// The backward kernels for float32 rows.

#include "gpu/backward_block_kernel.hpp"
#include "gpu/backward_lanes_kernel.hpp"
#include "gpu/backward_split_kernel.hpp"
#include "gpu/layernorm_launch.hpp"

namespace simple_layernorm::gpu {

template void launch_backward_lanes<float>(const LayerNormBackward&, const BackwardPlan&, void*,
                                           void*);
template void launch_backward_block<float>(const LayerNormBackward&, const BackwardPlan&, void*,
                                           void*);
template void launch_backward_split<float>(const LayerNormBackward&, const BackwardPlan&,
                                           const DeviceProperties&, void*, void*);

}  // namespace simple_layernorm::gpu
