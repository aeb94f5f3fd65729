// Weight and bias as float32, for calls whose own the forward kernels cannot take: of two dtypes,
// not aligned to packs, or of 16 bits where the output is float32.
#pragma once

#include <cstddef>

#include "simple_layernorm/layer_norm.hpp"

namespace simple_layernorm::gpu {

/// What the copies take of a workspace: 0 if there is no need for them.
std::size_t parameter_copies_bytes(const LayerNormForward& arguments);

/// Queues the copying into `workspace`, aligned to packs, and returns `arguments` with the copies.
LayerNormForward with_parameter_copies(const LayerNormForward& arguments, void* workspace,
                                       void* stream);

}  // namespace simple_layernorm::gpu
