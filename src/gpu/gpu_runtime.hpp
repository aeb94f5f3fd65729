// The only file that knows HIP from CUDA: names of the runtime, kernel launch, wave size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#if defined(__CUDACC__) && !defined(__HIP__)
#include <cuda_runtime.h>
#define SIMPLE_LAYERNORM_RUNTIME(name) cuda##name
#define SIMPLE_LAYERNORM_LANGUAGE "cuda"
#else
#include <hip/hip_runtime.h>
#define SIMPLE_LAYERNORM_RUNTIME(name) hip##name
#define SIMPLE_LAYERNORM_LANGUAGE "hip"
#endif

namespace simple_layernorm::gpu {

using Stream = SIMPLE_LAYERNORM_RUNTIME(Stream_t);

// Lanes of a wave, a constant in device code. warpSize is none since ROCm 7, and the host must ask
// the device's properties instead: one build may hold kernels for both sizes.
#if defined(SIMPLE_LAYERNORM_EMULATED_WAVE)
constexpr int kWave = SIMPLE_LAYERNORM_EMULATED_WAVE;
#elif defined(__GFX9__)
constexpr int kWave = 64;
#else
constexpr int kWave = 32;
#endif
constexpr int kSmallestWave = 32;

inline void check(SIMPLE_LAYERNORM_RUNTIME(Error_t) status, const char* what) {
  if (status == SIMPLE_LAYERNORM_RUNTIME(Success)) return;
  throw std::runtime_error(std::string("simple_layernorm: ") + what + " failed: " +
                           SIMPLE_LAYERNORM_RUNTIME(GetErrorString)(status));
}

#if defined(__CUDACC__) && !defined(__HIP__)
using DeviceProperties_t = cudaDeviceProp;
/// Name of a device's architecture as build options spell it: "sm_90".
inline std::string architecture_of(const DeviceProperties_t& properties) {
  return "sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
}
#else
using DeviceProperties_t = hipDeviceProp_t;
/// Name of a device's architecture as build options spell it: "gfx90a", without ":sramecc+" and
/// other features that the runtime appends.
inline std::string architecture_of(const DeviceProperties_t& properties) {
  const std::string name = properties.gcnArchName;
  return name.substr(0, name.find(':'));
}
#endif

// Declares the block's dynamic shared memory. The emulation, ordinary C++, has no such declaration.
#if defined(SIMPLE_LAYERNORM_EMULATED_WAVE)
#define SIMPLE_LAYERNORM_DYNAMIC_SHARED(type, name) EMULATION_DYNAMIC_SHARED(type, name)
#else
#define SIMPLE_LAYERNORM_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

/// Queues kernel(arguments...) and throws if it could not be launched.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::int64_t blocks, int threads,
            std::size_t shared_bytes, void* stream, Arguments... arguments) {
  const dim3 grid(static_cast<unsigned>(blocks)), block(static_cast<unsigned>(threads));
#if defined(__CUDACC__) && !defined(__HIP__)
  kernel<<<grid, block, shared_bytes, static_cast<Stream>(stream)>>>(arguments...);
#else
  hipLaunchKernelGGL(kernel, grid, block, shared_bytes, static_cast<Stream>(stream), arguments...);
#endif
  check(SIMPLE_LAYERNORM_RUNTIME(GetLastError)(), "a kernel launch");
}

}  // namespace simple_layernorm::gpu
