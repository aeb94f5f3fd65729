// The kernels for AVX2, FMA and F16C: Intel Haswell, AMD Zen, and later.
#include "cpu/backward_rows.hpp"
#include "cpu/forward_rows.hpp"

namespace simple_layernorm::cpu {
const Kernels kAvx2Kernels = {"avx2", forward, backward, forward_shared, backward_shared, merge};
}  // namespace simple_layernorm::cpu
