// The forward kernels for float32 rows.

#include "gpu/block_kernel.hpp"
#include "gpu/few_rows_kernel.hpp"
#include "gpu/lanes_kernel.hpp"
#include "gpu/split_kernel.hpp"

namespace simple_layernorm::gpu {

template void launch_forward_lanes<float>(const LayerNormForward&, const ForwardPlan&, void*);
template void launch_forward_few_rows<float>(const LayerNormForward&, const ForwardPlan&,
                                             const DeviceProperties&, void*, void*);
template void launch_forward_block<float>(const LayerNormForward&, const ForwardPlan&,
                                          const DeviceProperties&, void*);
template void launch_forward_split<float>(const LayerNormForward&, const ForwardPlan&,
                                          const DeviceProperties&, void*, void*);

}  // namespace simple_layernorm::gpu
