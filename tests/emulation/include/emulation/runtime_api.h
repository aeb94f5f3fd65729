// The part of HIP's runtime that the library calls, for one device whose work is done at once.
#pragma once

#include <functional>
#include <tuple>

#include "emulation/types.h"

enum hipError_t {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorInvalidConfiguration = 9,
};
enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum hipDeviceAttribute_t {
  hipDeviceAttributeMultiprocessorCount,
  hipDeviceAttributeWarpSize,
  hipDeviceAttributeMaxSharedMemoryPerBlock,
  hipDeviceAttributeL2CacheSize,
};
enum hipStreamCaptureStatus { hipStreamCaptureStatusNone, hipStreamCaptureStatusActive };
constexpr unsigned hipEventDisableTiming = 2;
typedef struct ihipStream_t* hipStream_t;
typedef struct ihipEvent_t* hipEvent_t;

struct hipDeviceProp_t {
  char name[256];
  char gcnArchName[256];
  int warpSize;
  int multiProcessorCount;
  std::size_t sharedMemPerBlock;
  std::size_t maxSharedMemoryPerMultiProcessor;
  int regsPerBlock;
  int maxThreadsPerBlock;
  int maxThreadsPerMultiProcessor;
  int l2CacheSize;
};

hipError_t hipGetDevice(int* device);
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status);
hipError_t hipGetLastError();
const char* hipGetErrorString(hipError_t error);

/// Device memory: a heap block of exactly this size, its contents a pattern that is NaN as any
/// type.
hipError_t hipMalloc(void** pointer, std::size_t bytes);
hipError_t hipFree(void* pointer);
hipError_t hipMemsetAsync(void* pointer, int value, std::size_t bytes, hipStream_t stream);

/// There is one stream, but what is queued between a wait for an event and its next record counts
/// as kept in order with other streams.
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);

namespace emulation {

struct Launch {
  const void* kernel;
  dim3 grid, block;
  std::size_t shared_bytes;
  std::function<void()> body;  ///< the kernel with its arguments, for one thread
};
void run(const Launch& launch);

hipError_t blocks_per_multiprocessor(int* blocks, const void* kernel, int threads,
                                     std::size_t shared_bytes);
hipError_t set_attribute(const void* kernel, hipFuncAttribute attribute, int value);

}  // namespace emulation

template <class... Parameters, class... Arguments>
void hipLaunchKernelGGL(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                        std::size_t shared_bytes, hipStream_t, Arguments... arguments) {
  const std::tuple<Parameters...> converted(arguments...);
  emulation::run({reinterpret_cast<const void*>(kernel), grid, block, shared_bytes,
                  [&] { std::apply(kernel, converted); }});
}

template <class Kernel>
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel kernel, int threads,
                                                        std::size_t shared_bytes) {
  return emulation::blocks_per_multiprocessor(blocks, reinterpret_cast<const void*>(kernel),
                                              threads, shared_bytes);
}

template <class Kernel>
hipError_t hipFuncSetAttribute(Kernel kernel, hipFuncAttribute attribute, int value) {
  return emulation::set_attribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
