// Device memory is the heap: AddressSanitizer watches its bounds. Shared memory see memory.hpp.

#include "memory.hpp"

#include <cstdlib>
#include <cstring>
#include <map>

#include "access_hooks.hpp"
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

/// Bytes before and after each allocation that belong to no other, where accesses are watched.
constexpr std::size_t kMargin = 4096;
std::size_t margin() { return watches_accesses() ? kMargin : 0; }

std::map<const char*, Allocation> allocations;

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
      dynamic_(static_cast<char*>(allocate(kSharedAlignment, dynamic_bytes + 2 * margin())) +
               margin()),
      static_shadow_(watches_accesses() ? static_shared_bytes() : 0),
      dynamic_shadow_(watches_accesses() ? dynamic_bytes : 0) {
  poison(image_.data(), image_.size());
}

SharedMemory::~SharedMemory() { std::free(static_cast<char*>(dynamic_) - margin()); }

Shadow* SharedMemory::find(const void* address, std::size_t& offset) {
  const char* const p = static_cast<const char*>(address);
  if (p >= emulated_shared_memory_begin && p < emulated_shared_memory_end) {
    offset = static_cast<std::size_t>(p - emulated_shared_memory_begin);
    return &static_shadow_;
  }
  const char* const begin = static_cast<const char*>(dynamic_);
  if (p < begin - margin() || p >= begin + dynamic_shadow_.bytes() + margin()) return nullptr;
  offset = static_cast<std::size_t>(p - begin);
  return &dynamic_shadow_;
}

void SharedMemory::bring_in() { copy(emulated_shared_memory_begin, image_.data(), image_.size()); }
void SharedMemory::take_out() { copy(image_.data(), emulated_shared_memory_begin, image_.size()); }

HostStatics::HostStatics() : image_(static_shared_bytes()) {
  copy(image_.data(), emulated_shared_memory_begin, image_.size());
}
HostStatics::~HostStatics() { copy(emulated_shared_memory_begin, image_.data(), image_.size()); }

Allocation* find_allocation(const void* address) {
  const char* const p = static_cast<const char*>(address);
  const auto after = allocations.upper_bound(p + margin());
  if (after == allocations.begin()) return nullptr;
  Allocation& allocation = std::prev(after)->second;
  return p < allocation.begin + allocation.shadow.bytes() + margin() ? &allocation : nullptr;
}

void mark_initialised(const void* pointer, std::size_t bytes) {
  if (!watches_accesses()) return;
  Allocation* const allocation = find_allocation(pointer);
  const char* const p = static_cast<const char*>(pointer);
  allocation->shadow.initialise(static_cast<std::size_t>(p - allocation->begin), bytes);
}

void forbid_writing(const void* pointer) {
  if (watches_accesses()) find_allocation(pointer)->read_only = true;
}

}  // namespace emulation

using namespace emulation;

hipError_t hipMalloc(void** pointer, std::size_t bytes) {
  char* const begin =
      static_cast<char*>(allocate(kDeviceAlignment, bytes + 2 * margin())) + margin();
  if (watches_accesses()) allocations.emplace(begin, Allocation{begin, Shadow(bytes)});
  *pointer = begin;
  return hipSuccess;
}

hipError_t hipFree(void* pointer) {
  if (pointer == nullptr) return hipSuccess;
  allocations.erase(static_cast<char*>(pointer));
  std::free(static_cast<char*>(pointer) - margin());
  return hipSuccess;
}

hipError_t hipMemsetAsync(void* pointer, int value, std::size_t bytes, hipStream_t) {
  std::memset(pointer, value, bytes);
  mark_initialised(pointer, bytes);
  return hipSuccess;
}
