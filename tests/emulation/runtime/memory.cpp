// Device memory is the heap: AddressSanitizer watches its bounds. Shared memory see memory.hpp.

#include "memory.hpp"

#include <cstdlib>
#include <cstring>

#include "hip/hip_runtime.h"
#include "schedule.hpp"

// The region that shared_memory.ld gathers.
extern "C" char emulated_shared_memory_begin[], emulated_shared_memory_end[];

namespace emulation {
namespace {

/// Copies past AddressSanitizer, whose red zones lie between static variables. They hold no data,
/// and their marks are kept elsewhere.
void copy(void* to, const void* from, std::size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

constexpr std::size_t kDeviceAlignment = 256;
constexpr std::size_t kSharedAlignment = 16;

void* allocate(std::size_t alignment, std::size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) std::abort();
  poison(memory, bytes);
  return memory;
}

}  // namespace

void poison(void* memory, std::size_t bytes) {
  const char pattern[2] = {static_cast<char>(schedule.poison & 0xff),
                           static_cast<char>(schedule.poison >> 8)};
  for (std::size_t i = 0; i < bytes; ++i) static_cast<char*>(memory)[i] = pattern[i % 2];
}

std::size_t static_shared_bytes() {
  return static_cast<std::size_t>(emulated_shared_memory_end - emulated_shared_memory_begin);
}

SharedMemory::SharedMemory(std::size_t dynamic_bytes)
    : image_(static_shared_bytes()),
      dynamic_(allocate(kSharedAlignment, dynamic_bytes)),
      dynamic_bytes_(dynamic_bytes) {
  poison(image_.data(), image_.size());
}

SharedMemory::~SharedMemory() { std::free(dynamic_); }

void SharedMemory::bring_in() { copy(emulated_shared_memory_begin, image_.data(), image_.size()); }
void SharedMemory::take_out() { copy(image_.data(), emulated_shared_memory_begin, image_.size()); }

HostStatics::HostStatics() : image_(static_shared_bytes()) {
  copy(image_.data(), emulated_shared_memory_begin, image_.size());
}
HostStatics::~HostStatics() { copy(emulated_shared_memory_begin, image_.data(), image_.size()); }

}  // namespace emulation

hipError_t hipMalloc(void** pointer, std::size_t bytes) {
  *pointer = emulation::allocate(emulation::kDeviceAlignment, bytes);
  return hipSuccess;
}

hipError_t hipFree(void* pointer) {
  std::free(pointer);
  return hipSuccess;
}

hipError_t hipMemsetAsync(void* pointer, int value, std::size_t bytes, hipStream_t) {
  std::memset(pointer, value, bytes);
  return hipSuccess;
}
