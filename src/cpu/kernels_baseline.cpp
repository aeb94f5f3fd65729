// The kernels for any machine of the architecture.
#include "cpu/backward_rows.hpp"
#include "cpu/forward_rows.hpp"

namespace simple_layernorm::cpu {
const Kernels kBaselineKernels = {"baseline",     forward,         backward,
                                  forward_shared, backward_shared, merge};
}  // namespace simple_layernorm::cpu
