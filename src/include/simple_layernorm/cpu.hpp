// LayerNorm on the CPU. The kernels start no threads of their own: the caller lends them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "simple_layernorm/layer_norm.hpp"

#pragma GCC visibility push(default)
namespace simple_layernorm::cpu {

/// Lends threads to a kernel: calls task(i) once for every i in [0, tasks), on any threads, in any
/// order, and returns when all calls have returned. Results do not depend on how it does so.
using ParallelFor =
    std::function<void(std::int64_t tasks, const std::function<void(std::int64_t)>& task)>;

/// A ParallelFor that runs all tasks on the calling thread.
void serial_for(std::int64_t tasks, const std::function<void(std::int64_t)>& task);

/// Bytes of scratch memory, aligned to 64, that the function of the same name needs for these
/// arguments. 0 means that workspace may be null.
std::size_t layer_norm_forward_workspace(const LayerNormForward& arguments);
std::size_t layer_norm_backward_workspace(const LayerNormBackward& arguments);

/// Runs the forward or backward pass. `workspace` has the size asked for above; its contents are
/// undefined on entry and on return. Nothing is thrown except by `parallel_for` itself.
void layer_norm_forward(const LayerNormForward& arguments, void* workspace = nullptr,
                        const ParallelFor& parallel_for = serial_for);
void layer_norm_backward(const LayerNormBackward& arguments, void* workspace,
                         const ParallelFor& parallel_for = serial_for);

/// Instruction set that the kernels use on this machine: "baseline", "avx2", "avx512", ...
const char* level();

}  // namespace simple_layernorm::cpu
#pragma GCC visibility pop
