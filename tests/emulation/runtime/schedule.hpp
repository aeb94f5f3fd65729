// What a test may choose about a run: the order of threads and blocks, the device, the poison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emulation {

enum class Order { forward, backward, shuffled };

struct Schedule {
  Order threads = Order::forward;
  Order blocks = Order::forward;
  unsigned seed = 1;
  /// Repeated through memory that nobody has written yet. The default is a NaN as float16,
  /// bfloat16, float32 and float64.
  std::uint16_t poison = 0x7ff5;
  int multiprocessors = 4;            ///< one of those in device.cpp
  int blocks_per_multiprocessor = 4;  ///< at most; threads and shared memory may allow fewer
  bool is_capturing = false;          ///< a graph

  std::string text() const;
};

inline Schedule schedule;

/// What the test is doing, for fault messages.
inline std::string current_case;

/// The kernels compiled, those launched so far, and their names.
std::vector<const void*> compiled_kernels();
std::vector<const void*> launched_kernels();
std::vector<std::string> function_names(const std::vector<const void*>& kernels);

/// Declares that the host has written these bytes of device memory, and that kernels must not write
/// to the allocation that begins here.
void mark_initialised(const void* pointer, std::size_t bytes);
void forbid_writing(const void* pointer);

}  // namespace emulation
