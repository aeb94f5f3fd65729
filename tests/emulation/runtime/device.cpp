// The runtime API's functions, for a device with AMD's limits.

#include "device.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>

#include "fault.hpp"
#include "grid.hpp"
#include "schedule.hpp"

// Addresses of all kernels, written by the compiler: see __global__ in hip_runtime.h.
extern "C" const void* __start___patchable_function_entries[];
extern "C" const void* __stop___patchable_function_entries[];

namespace emulation {
namespace {

constexpr int kMultiprocessors[] = {1, 2, 3, 4, 5, 16, 128};
constexpr int kMostBlocksPerMultiprocessor = 4;
constexpr int kMostThreadsPerBlock = 1024;
constexpr int kMostThreadsPerMultiprocessor = 2048;

/// Devices with waves of 32 are like NVIDIA's of compute capability 9.0, one like those of 8.9, and
/// one like AMD's.
std::size_t shared_bytes_per_block() {
  if (warpSize == 64 || schedule.multiprocessors == 3) return 64 << 10;
  return (schedule.multiprocessors == 5 ? 99 : 227) << 10;
}

hipError_t last_error = hipSuccess;
std::set<const void*> launched;

bool is_valid(const Launch& launch) {
  const std::uint64_t threads = std::uint64_t{launch.grid.x} * launch.block.x;
  return launch.grid.x > 0 && launch.grid.y == 1 && launch.grid.z == 1 && launch.block.x > 0 &&
         launch.block.x <= kMostThreadsPerBlock && launch.block.y == 1 && launch.block.z == 1 &&
         threads < std::uint64_t{1} << 32 && launch.shared_bytes <= shared_bytes_per_block();
}

/// Kernels for rows that are not aligned need more registers.
bool is_for_any_alignment(const void* kernel) {
  static std::map<const void*, bool> known;
  const auto found = known.find(kernel);
  if (found != known.end()) return found->second;
  return known[kernel] = function_names({kernel}).front().find("Any") != std::string::npos;
}

}  // namespace

std::vector<const void*> compiled_kernels() {
  return std::vector<const void*>(__start___patchable_function_entries,
                                  __stop___patchable_function_entries);
}

std::vector<const void*> launched_kernels() { return {launched.begin(), launched.end()}; }

hipError_t blocks_per_multiprocessor(int* blocks, const void* kernel, int threads,
                                     std::size_t shared_bytes) {
  if (threads <= 0 || threads > kMostThreadsPerBlock || shared_bytes > shared_bytes_per_block()) {
    *blocks = 0;
    return last_error = hipErrorInvalidValue;
  }
  *blocks = std::min(schedule.blocks_per_multiprocessor, kMostThreadsPerMultiprocessor / threads);
  if (shared_bytes > 0) {
    *blocks = std::min(*blocks, static_cast<int>(shared_bytes_per_block() / shared_bytes));
  }
  if (is_for_any_alignment(kernel)) *blocks = std::max(*blocks - 1, 1);
  return hipSuccess;
}

hipError_t set_attribute(const void*, hipFuncAttribute, int value) {
  const bool fits = static_cast<std::size_t>(value) <= shared_bytes_per_block();
  return fits ? hipSuccess : last_error = hipErrorInvalidValue;
}

void run(const Launch& launch) {
  if (!is_valid(launch)) {
    last_error = hipErrorInvalidConfiguration;
    return;
  }
  launched.insert(launch.kernel);
  int resident = 0;
  blocks_per_multiprocessor(&resident, launch.kernel, static_cast<int>(launch.block.x),
                            launch.shared_bytes);
  // When a graph is replayed, nobody knows how much room others leave for its blocks.
  run_grid(launch, schedule.is_capturing ? 1 : resident * schedule.multiprocessors);
}

}  // namespace emulation

using namespace emulation;

// A device for each number of multiprocessors and of blocks on each: the library may ask once for a
// device's properties and a kernel's occupancy, and keep them.
hipError_t hipGetDevice(int* device) {
  const auto found =
      std::find(std::begin(kMultiprocessors), std::end(kMultiprocessors), schedule.multiprocessors);
  if (found == std::end(kMultiprocessors)) fault("no emulated device has so many multiprocessors");
  *device = static_cast<int>(found - std::begin(kMultiprocessors)) * kMostBlocksPerMultiprocessor +
            schedule.blocks_per_multiprocessor - 1;
  return hipSuccess;
}

hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated device");
  std::snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "%s",
                warpSize == 64 ? "gfx90a:sramecc+:xnack-" : "gfx1030");
  properties->warpSize = warpSize;
  properties->multiProcessorCount = kMultiprocessors[device / kMostBlocksPerMultiprocessor];
  properties->sharedMemPerBlock = shared_bytes_per_block();
  properties->maxSharedMemoryPerMultiProcessor = shared_bytes_per_block();
  properties->regsPerBlock = 64 << 10;
  properties->maxThreadsPerBlock = kMostThreadsPerBlock;
  properties->maxThreadsPerMultiProcessor = kMostThreadsPerMultiprocessor;
  properties->l2CacheSize = 4 << 20;
  return hipSuccess;
}

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  hipDeviceProp_t properties;
  hipGetDeviceProperties(&properties, device);
  switch (attribute) {
    case hipDeviceAttributeMultiprocessorCount: *value = properties.multiProcessorCount; break;
    case hipDeviceAttributeWarpSize: *value = properties.warpSize; break;
    case hipDeviceAttributeMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      break;
    case hipDeviceAttributeL2CacheSize: *value = properties.l2CacheSize; break;
  }
  return hipSuccess;
}

hipError_t hipStreamIsCapturing(hipStream_t, hipStreamCaptureStatus* status) {
  *status = schedule.is_capturing ? hipStreamCaptureStatusActive : hipStreamCaptureStatusNone;
  return hipSuccess;
}

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) {
  *event = nullptr;
  return hipSuccess;
}

hipError_t hipEventRecord(hipEvent_t, hipStream_t) {
  is_in_order = false;
  return hipSuccess;
}

hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t, unsigned) {
  if (schedule.is_capturing) fault("waits for an event of another stream while captured");
  is_in_order = true;
  return hipSuccess;
}

hipError_t hipGetLastError() {
  const hipError_t error = last_error;
  last_error = hipSuccess;
  return error;
}

const char* hipGetErrorString(hipError_t error) {
  switch (error) {
    case hipSuccess: return "no error";
    case hipErrorInvalidValue: return "invalid argument";
    case hipErrorInvalidConfiguration: return "invalid configuration argument";
  }
  return "unknown error";
}
