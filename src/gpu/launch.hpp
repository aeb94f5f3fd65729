// What host code of HIP and CUDA calls by different names: devices and their properties, errors,
// the launch of a kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "gpu/gpu_runtime.hpp"
#include "gpu/launch_plan.hpp"

#if defined(__CUDACC__) && !defined(__HIP__)
#define SIMPLE_LAYERNORM_RUNTIME(name) cuda##name
#define SIMPLE_LAYERNORM_LANGUAGE "cuda"
#else
#define SIMPLE_LAYERNORM_RUNTIME(name) hip##name
#define SIMPLE_LAYERNORM_LANGUAGE "hip"
#endif

namespace simple_layernorm::gpu {

using Stream = SIMPLE_LAYERNORM_RUNTIME(Stream_t);

inline void check(SIMPLE_LAYERNORM_RUNTIME(Error_t) status, const char* what) {
  if (status == SIMPLE_LAYERNORM_RUNTIME(Success)) return;
  static_cast<void>(SIMPLE_LAYERNORM_RUNTIME(GetLastError)());  // or others' calls would report it
  throw std::runtime_error(std::string("simple_layernorm: ") + what +
                           " failed: " + SIMPLE_LAYERNORM_RUNTIME(GetErrorString)(status));
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

/// See Room in launch_plan.hpp.
inline Room room_of(const DeviceProperties_t& properties) {
#if defined(__CUDACC__) && !defined(__HIP__)
  const std::size_t bytes = properties.sharedMemPerBlockOptin;
  return bytes >= kLargeSharedBytes    ? Room::shared_memory
         : bytes >= kMediumSharedBytes ? Room::registers_512
                                       : Room::registers_256;
#else
  const std::size_t bytes = properties.sharedMemPerBlock;  // AMD's: 64 KiB, emulated: any
  if (bytes >= kLargeSharedBytes) return Room::shared_memory;
  const bool has_512 = properties.warpSize == 64 || bytes >= kMediumSharedBytes;
  return has_512 ? Room::registers_512 : Room::registers_256;
#endif
}

/// Bytes of a device's L2 cache, or 0 if loads cannot ask to stay there: see load_lasting.
inline std::int64_t lasting_l2_bytes(const DeviceProperties_t& properties) {
#if defined(__CUDACC__) && !defined(__HIP__)
  return properties.major >= 8 ? properties.l2CacheSize : 0;
#else
  static_cast<void>(properties);
  return 0;
#endif
}

/// An answer of the runtime for each device, asked for once: calls of the library must not wait for
/// it again. Any number of threads may ask.
template <class Answer>
class PerDevice {
 public:
  /// That of the current device: what ask(its index) returned the first time.
  template <class Ask>
  const Answer& get(Ask ask) {
    int device = 0;
    check(SIMPLE_LAYERNORM_RUNTIME(GetDevice)(&device), "GetDevice");
    if (device >= kMostDevices) {
      throw std::runtime_error("simple_layernorm: expected a GPU with an index below " +
                               std::to_string(kMostDevices) + ", but got " +
                               std::to_string(device));
    }
    std::call_once(asked_[device], [&] { answers_[device] = ask(device); });
    return answers_[device];
  }

 private:
  static constexpr int kMostDevices = 64;
  std::array<Answer, kMostDevices> answers_{};
  std::array<std::once_flag, kMostDevices> asked_;
};

#if defined(__CUDACC__) && !defined(__HIP__)
/// Whether kernels wait for earlier work themselves on the current device: `kernel`'s code for it
/// must be made for compute capability 9.0 or later, as then is that of all. Graph capture takes
/// such launches since CUDA 12.3.
inline bool awaits_earlier_work(const void* kernel) {
  static PerDevice<bool> awaits;
  return awaits.get([&](int) {
    constexpr int kCuda12_3 = 12030;
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "asking for the driver's version");
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel), "asking for a kernel's attributes");
    return CUDART_VERSION >= kCuda12_3 && driver >= kCuda12_3 && attributes.ptxVersion >= 90;
  });
}
#endif

/// What a launch consists of besides the kernel and its arguments.
struct LaunchConfig {
  std::int64_t blocks;
  int threads;               ///< of a block
  std::size_t shared_bytes;  ///< for each block, beside what the kernel declares
  void* stream;
  bool together = false;  ///< NVIDIA: all blocks at the same time or none, a cooperative launch
};

/// Queues kernel(arguments...), and throws if it could not be launched. On NVIDIA GPUs since Hopper
/// its blocks come to their multiprocessors while the kernel before it ends, and wait there
/// (programmatic dependent launch). H200, torch 2.11, 2026-11-30, with and without: a graph's
/// launch of 16 x 64 and 128 x 1024 float32 1.27 and 1.68, 2.07 and 2.52 us; backward, three
/// kernels, 4 x 65536 bfloat16 15.3 and 16.5 us.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchConfig& config, Arguments... arguments) {
  const dim3 grid(static_cast<unsigned>(config.blocks));
  const dim3 block(static_cast<unsigned>(config.threads));
  const auto stream = static_cast<Stream>(config.stream);
#if defined(__CUDACC__) && !defined(__HIP__)
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t all{};
  all.gridDim = grid;
  all.blockDim = block;
  all.dynamicSmemBytes = config.shared_bytes;
  all.stream = stream;
  all.attrs = attributes;
  if (awaits_earlier_work(reinterpret_cast<const void*>(kernel))) {
    cudaLaunchAttribute& early = attributes[all.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (config.together) {
    cudaLaunchAttribute& together = attributes[all.numAttrs++];
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
  }
  check(cudaLaunchKernelEx(&all, kernel, static_cast<Parameters>(arguments)...), "a kernel launch");
#else
  hipLaunchKernelGGL(kernel, grid, block, config.shared_bytes, stream, arguments...);
  check(SIMPLE_LAYERNORM_RUNTIME(GetLastError)(), "a kernel launch");
#endif
}

/// Whether kernels whose blocks wait for each other may be queued on `stream`. On AMD not where a
/// graph is captured: nobody knows beside what it will run.
inline bool may_wait([[maybe_unused]] void* stream) {
#if defined(__CUDACC__) && !defined(__HIP__)
  return true;
#else
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  const hipError_t error = hipStreamIsCapturing(static_cast<Stream>(stream), &status);
  if (error != hipSuccess) static_cast<void>(hipGetLastError());
  return error == hipSuccess && status == hipStreamCaptureStatusNone;
#endif
}

#if defined(__CUDACC__) && !defined(__HIP__)
/// Queues such a kernel by launch(): one that is launched together needs no more.
template <class Launch>
void launch_in_turn(void*, Launch launch) {
  launch();
}
#else
/// Queues such kernels, of all streams of a device, one after the other, so that none keeps blocks
/// out that another waits for. AMD's cooperative launch would do the same, but makes the host wait
/// in some versions of ROCm.
class Turns {
 public:
  Turns() { check(hipEventCreateWithFlags(&last_, hipEventDisableTiming), "making an event"); }

  template <class Launch>
  void queue(Stream stream, Launch launch) {
    const std::lock_guard<std::mutex> guard(mutex_);
    check(hipStreamWaitEvent(stream, last_, 0), "waiting for an event");
    launch();
    check(hipEventRecord(last_, stream), "recording an event");
  }

 private:
  std::mutex mutex_;
  hipEvent_t last_;  ///< after the last of these kernels; kept for the process's life
};

/// Those of the current device.
inline Turns& turns() {
  static PerDevice<std::unique_ptr<Turns>> all;
  return *all.get([](int) { return std::make_unique<Turns>(); });
}

/// Queues such a kernel on `stream` by launch().
template <class Launch>
void launch_in_turn(void* stream, Launch launch) {
  turns().queue(static_cast<Stream>(stream), launch);
}
#endif

/// To be called before launches with more shared memory than a block gets unasked: 48 KiB of
/// NVIDIA's 227, of which kernels declare up to 8 themselves. `most_bytes`: for any launch of
/// kKernel.
template <auto kKernel>
void allow_shared_bytes(std::size_t most_bytes) {
  if (most_bytes <= 40 * 1024) return;
  static PerDevice<std::size_t> allowed;
  allowed.get([&](int) {
    check(SIMPLE_LAYERNORM_RUNTIME(FuncSetAttribute)(
              reinterpret_cast<const void*>(kKernel),
              SIMPLE_LAYERNORM_RUNTIME(FuncAttributeMaxDynamicSharedMemorySize),
              static_cast<int>(most_bytes)),
          "asking for shared memory");
    return most_bytes;
  });
}

/// Blocks of kKernel that a multiprocessor runs at the same time. The arguments must be the same in
/// all calls on a device.
template <auto kKernel>
int blocks_per_multiprocessor(int threads, std::size_t shared_bytes) {
  static PerDevice<int> resident;
  return resident.get([&](int) {
    int blocks = 0;
    check(SIMPLE_LAYERNORM_RUNTIME(OccupancyMaxActiveBlocksPerMultiprocessor)(
              &blocks, reinterpret_cast<const void*>(kKernel), threads, shared_bytes),
          "asking for a kernel's occupancy");
    return blocks;
  });
}

}  // namespace simple_layernorm::gpu
