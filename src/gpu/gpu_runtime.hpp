// The only file that knows HIP from CUDA: names of the runtime, kernel launch, wave size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
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

// After the runtime, whose __host__ and __device__ it uses.
#include "gpu/launch_plan.hpp"
#include "math/bits16.hpp"

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

// Lanes of the waves that this build may meet: no kernel for others is compiled.
#if defined(SIMPLE_LAYERNORM_EMULATED_WAVE)
constexpr int kSmallestWave = SIMPLE_LAYERNORM_EMULATED_WAVE;
constexpr int kLargestWave = SIMPLE_LAYERNORM_EMULATED_WAVE;
#elif defined(__CUDACC__) && !defined(__HIP__)
constexpr int kSmallestWave = 32;
constexpr int kLargestWave = 32;
#else
constexpr int kSmallestWave = 32;
constexpr int kLargestWave = 64;
#endif

/// Second argument of __launch_bounds__ for kernels that need many registers. CUDA: how many blocks
/// a multiprocessor must have room for, one less for kernels that need more. HIP: how many waves a
/// SIMD must; one leaves 512 registers on CDNA, two 256. In parentheses there: HIP's macro takes
/// the commas for its own.
template <int kThreads, int kBlocks, bool kNeedsMore>
#if defined(__CUDACC__) && !defined(__HIP__)
constexpr int kResident = kNeedsMore && kBlocks > 1 ? kBlocks - 1 : kBlocks;
#else
constexpr int kResident = kThreads > 128 ? 2 : 1;
#endif

// What the devices of a build have room for (see Room), whether its kernels keep numbers in shared
// memory, and whether 16 bytes at an address that is no multiple of 16 are loaded by one
// instruction.
#if defined(SIMPLE_LAYERNORM_EMULATED_WAVE)
constexpr bool kKeepsInSharedMemory = kWave == 32;
constexpr bool kMovesUnalignedPacks = kWave == 64;
constexpr Room kLeastRoom = kWave == 32 ? Room::registers_256 : Room::registers_512;
constexpr Room kMostRoom = kWave == 32 ? Room::shared_memory : Room::registers_512;
#elif defined(__CUDACC__) && !defined(__HIP__)
constexpr bool kKeepsInSharedMemory = true;
constexpr bool kMovesUnalignedPacks = false;
constexpr Room kLeastRoom = Room::registers_512;
constexpr Room kMostRoom = Room::shared_memory;
#else
constexpr bool kKeepsInSharedMemory = false;
constexpr bool kMovesUnalignedPacks = true;
constexpr Room kLeastRoom = Room::registers_256;
constexpr Room kMostRoom = Room::registers_512;
#endif

/// Whether loads can ask to stay in the L2 cache: see load_lasting.
#if defined(__CUDACC__) && !defined(__HIP__)
constexpr bool kLoadsLasting = true;
#else
constexpr bool kLoadsLasting = false;
#endif

/// Whether multiprocessors run more than 1024 threads at a time: those of compute capability 7.5 do
/// not. AMD's count otherwise, see kResident.
#if defined(__CUDA_ARCH__)
constexpr bool kRunsManyThreads = __CUDA_ARCH__ >= 800;
#else
constexpr bool kRunsManyThreads = false;
#endif

// A build for several devices compiles each kernel for all of them: those that want more room than
// the device has are empty.
#if defined(__AMDGCN__) && !defined(__GFX9__)
constexpr Room kRoom = Room::registers_256;
#else
constexpr Room kRoom = kMostRoom;
#endif

/// For a lambda that is called in several places with variables that must stay in registers.
#define SIMPLE_LAYERNORM_INLINED __attribute__((always_inline))

/// The shared memory that a launch adds to what a kernel declares.
#if defined(SIMPLE_LAYERNORM_EMULATED_WAVE)
#define SIMPLE_LAYERNORM_DYNAMIC_SHARED(type, name) EMULATION_DYNAMIC_SHARED(type, name)
#else
#define SIMPLE_LAYERNORM_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

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

// Conversions of 16-bit floats by the machine's instructions, two results to a 32-bit word; where
// it has none, or is emulated, by math/bits16.hpp. Both round to nearest even.
#if defined(__CUDA_ARCH__)
__device__ inline float float_from_float16(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ inline std::uint32_t pair_of_float16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  std::uint16_t first, second;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(first) : "f"(low));
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(second) : "f"(high));
  return first | std::uint32_t{second} << 16;
#endif
}
__device__ inline std::uint32_t pair_of_bfloat16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  return to_bfloat16(low).bits | std::uint32_t{to_bfloat16(high).bits} << 16;
#endif
}
#else
#if defined(__AMDGCN__)
__device__ inline float float_from_float16(std::uint16_t bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
__device__ inline std::uint32_t pair_of_float16(float low, float high) {
  const auto bits = [](float value) {
    return std::uint32_t{__builtin_bit_cast(std::uint16_t, static_cast<_Float16>(value))};
  };
  return bits(low) | bits(high) << 16;
}
#else
__device__ inline float float_from_float16(std::uint16_t bits) { return to_float(Float16{bits}); }
__device__ inline std::uint32_t pair_of_float16(float low, float high) {
  return to_float16(low).bits | std::uint32_t{to_float16(high).bits} << 16;
}
#endif
__device__ inline std::uint32_t pair_of_bfloat16(float low, float high) {
  return to_bfloat16(low).bits | std::uint32_t{to_bfloat16(high).bits} << 16;
}
#endif

// Lanes of a wave exchange a value, or a condition. All lanes must take part.
#if defined(__CUDACC__) && !defined(__HIP__)
template <class T>
__device__ T shuffle_xor(T value, int distance) {
  return __shfl_xor_sync(0xffffffffu, value, distance);
}
/// From lane `lane` modulo kLanes of the same group of kLanes.
template <int kLanes, class T>
__device__ T shuffle_from(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane, kLanes);
}
__device__ inline bool any_lane(bool condition) { return __any_sync(0xffffffffu, condition) != 0; }
#else
template <class T>
__device__ T shuffle_xor(T value, int distance) {
  return __shfl_xor(value, distance);
}
template <int kLanes, class T>
__device__ T shuffle_from(T value, int lane) {
  return __shfl(value, lane, kLanes);
}
__device__ inline bool any_lane(bool condition) { return __any(condition) != 0; }
#endif

/// Loads what should leave the L2 cache after all else: see keeps_cached.
__device__ inline uint4 load_lasting(const uint4* p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint64_t policy;
  uint4 v;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p), "l"(policy));
  return v;
#else
  return *p;
#endif
}

/// Loads what the same multiprocessor will want again soon: it should leave the L1 cache last.
__device__ inline uint4 load_kept(const uint4* p) {
#if defined(__CUDA_ARCH__)
  uint4 v;
  asm volatile("ld.global.L1::evict_last.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
#else
  return *p;
#endif
}

/// A store of 16 bytes that stays one: of words that were moved between lanes, the compiler makes
/// four stores of 4. To memory that the kernel does not read: no load waits for it.
__device__ inline void store_whole(uint4* p, const uint4& words) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(p), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w));
#else
  *p = words;
#endif
}

/// Asks for the cache line at p to be brought to the L2 cache.
__device__ inline void prefetch(const void* p) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" : : "l"(p));
#else
  __builtin_prefetch(p);
#endif
}

// Blocks of a grid hand over a word of 64 bits. Relaxed: the word is the whole message, nothing
// else is ordered by it.
#if defined(__CUDACC__) && !defined(__HIP__)
__device__ inline std::uint64_t load_shared_word(const std::uint64_t* p) {
  std::uint64_t word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(p) : "memory");
  return word;
}
__device__ inline void store_shared_word(std::uint64_t* p, std::uint64_t word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(p), "l"(word) : "memory");
}
__device__ inline std::uint64_t add_shared_word(std::uint64_t* p, std::uint64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(p), value);
}
#else
__device__ inline std::uint64_t load_shared_word(const std::uint64_t* p) {
  return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
__device__ inline void store_shared_word(std::uint64_t* p, std::uint64_t word) {
  __hip_atomic_store(p, word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
__device__ inline std::uint64_t add_shared_word(std::uint64_t* p, std::uint64_t value) {
  return __hip_atomic_fetch_add(p, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
#endif

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

/// First of all in every kernel, before it reads or writes memory: waits for the work queued before
/// it, and lets that queued after it come as far as here. See launch.
__device__ inline void await_earlier_work() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" : : : "memory");
#endif
}

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
  /// NVIDIA: all blocks run at the same time or none (cooperative launch). AMD: as any others, as
  /// older ROCm runs such a launch at once where a graph is to be captured.
  bool together = false;
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
