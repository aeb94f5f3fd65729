// Device memory and the shared memory of blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace emulation {

/// Fills memory with the schedule's poison.
void poison(void* memory, std::size_t bytes);

/// A block's shared memory: an image of the static variables, moved into place while the block
/// runs, and a heap block of exactly the dynamic size, so that overruns are seen.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t dynamic_bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&&) noexcept = default;

  void bring_in();
  void take_out();
  void* dynamic() const { return dynamic_; }
  std::size_t dynamic_bytes() const { return dynamic_bytes_; }

 private:
  std::vector<char> image_;
  void* dynamic_ = nullptr;
  std::size_t dynamic_bytes_;
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

}  // namespace emulation
