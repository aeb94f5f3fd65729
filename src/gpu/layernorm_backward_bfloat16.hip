// The backward kernels for bfloat16 rows.

#include "gpu/backward_block_kernel.hpp"
#include "gpu/backward_lanes_kernel.hpp"
#include "gpu/backward_split_kernel.hpp"
#include "gpu/layernorm_launch.hpp"

namespace simple_layernorm::gpu {

template void launch_backward_lanes<BFloat16>(const LayerNormBackward&, const BackwardPlan&, void*,
                                              void*);
template void launch_backward_block<BFloat16>(const LayerNormBackward&, const BackwardPlan&, void*,
                                              void*);
template void launch_backward_split<BFloat16>(const LayerNormBackward&, const BackwardPlan&,
                                              const DeviceProperties&, void*, void*);

}  // namespace simple_layernorm::gpu
