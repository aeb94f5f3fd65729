// The kernels for AVX-512 F, BW, DQ and VL: Intel Skylake-SP, AMD Zen 4, and later.
#include "cpu/backward_rows.hpp"
#include "cpu/forward_rows.hpp"

namespace simple_layernorm::cpu {
const Kernels kAvx512Kernels = {"avx512",       forward,         backward,
                                forward_shared, backward_shared, merge};
}  // namespace simple_layernorm::cpu
