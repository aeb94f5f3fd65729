// Device memory and the shared memory of blocks.
#pragma once

#include <cstddef>
#include <vector>

#include "shadow.hpp"

namespace emulation {

/// Fills memory with the schedule's poison.
void poison(void* memory, std::size_t bytes);

/// A block's shared memory: an image of the static variables, moved into place while the block
/// runs, and a heap block of exactly the dynamic size, so that overruns are seen.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t dynamic_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;

  void bring_in();
  void take_out();
  void* dynamic() const { return dynamic_; }

  /// The shadow of an address in this block's shared memory and its offset there, or null.
  Shadow* find(const void* address, std::size_t& offset);

 private:
  std::vector<char> image_;
  void* dynamic_ = nullptr;
  Shadow static_shadow_, dynamic_shadow_;
};

/// Keeps the host's contents of static variables while a grid runs.
class HostStatics {
 public:
  HostStatics();
  ~HostStatics();

 private:
  std::vector<char> image_;
};

std::size_t static_shared_bytes();

/// A block of device memory.
struct Allocation {
  char* begin;
  Shadow shadow;
  bool read_only = false;
};

/// The allocation that an address lies in, or that it misses by little; null otherwise.
Allocation* find_allocation(const void* address);

}  // namespace emulation
