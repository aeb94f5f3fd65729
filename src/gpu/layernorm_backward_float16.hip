// The backward kernels for float16 rows.

#include "gpu/backward_block_kernel.hpp"
#include "gpu/backward_lanes_kernel.hpp"
#include "gpu/backward_split_kernel.hpp"
#include "gpu/layernorm_launch.hpp"

namespace simple_layernorm::gpu {

template void launch_backward_lanes<Float16>(const LayerNormBackward&, const BackwardPlan&, void*,
                                             void*);
template void launch_backward_block<Float16>(const LayerNormBackward&, const BackwardPlan&, void*,
                                             void*);
template void launch_backward_split<Float16>(const LayerNormBackward&, const BackwardPlan&,
                                             const DeviceProperties&, void*, void*);

}  // namespace simple_layernorm::gpu
