// Arrays in emulated device memory, of any dtype, as the tests fill and read them.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "hip/hip_runtime.h"
#include "math/bits16.hpp"
#include "runtime/schedule.hpp"
#include "simple_layernorm/dtype.hpp"

namespace emulation_tests {

using simple_layernorm::Dtype;
using Bytes = std::vector<unsigned char>;

inline double read_element(const unsigned char* p, Dtype dtype) {
  const auto as = [p](auto value) {
    std::memcpy(&value, p, sizeof value);
    return value;
  };
  switch (dtype) {
    case Dtype::float64: return as(double{});
    case Dtype::float32: return as(float{});
    case Dtype::float16: return to_float(as(simple_layernorm::Float16{}));
    case Dtype::bfloat16: return to_float(as(simple_layernorm::BFloat16{}));
  }
  return 0;
}

inline void write_element(unsigned char* p, Dtype dtype, double value) {
  const auto put = [p](auto element) { std::memcpy(p, &element, sizeof element); };
  const float narrow = static_cast<float>(value);
  switch (dtype) {
    case Dtype::float64: return put(value);
    case Dtype::float32: return put(narrow);
    case Dtype::float16: return put(simple_layernorm::to_float16(narrow));
    case Dtype::bfloat16: return put(simple_layernorm::to_bfloat16(narrow));
  }
}

/// The value that an element of this dtype holds when `value` is stored in it.
inline double rounded(double value, Dtype dtype) {
  unsigned char element[sizeof(double)];
  write_element(element, dtype, value);
  return read_element(element, dtype);
}

/// Exactly `count` elements after `offset` unused ones, poisoned until written; or no array at all.
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(Dtype dtype, std::int64_t count, std::int64_t offset = 0)
      : dtype_(dtype), offset_(bytes_of(offset)), bytes_(bytes_of(count)) {
    (void)hipMalloc(&memory_, offset_ + bytes_);
  }
  DeviceArray(DeviceArray&& other) noexcept { *this = std::move(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(dtype_, other.dtype_);
    std::swap(offset_, other.offset_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceArray() { (void)hipFree(memory_); }

  void* data() const { return memory_ == nullptr ? nullptr : begin(); }
  void write(std::int64_t i, double value) {
    write_element(begin() + bytes_of(i), dtype_, value);
    emulation::mark_initialised(begin() + bytes_of(i), bytes_of(1));
  }
  double read(std::int64_t i) const { return read_element(begin() + bytes_of(i), dtype_); }
  Bytes contents() const { return memory_ == nullptr ? Bytes() : Bytes(begin(), begin() + bytes_); }
  void make_read_only() const {
    if (memory_ != nullptr) emulation::forbid_writing(memory_);
  }

 private:
  std::size_t bytes_of(std::int64_t elements) const {
    return static_cast<std::size_t>(elements) * simple_layernorm::size_of(dtype_);
  }
  unsigned char* begin() const { return static_cast<unsigned char*>(memory_) + offset_; }

  void* memory_ = nullptr;
  Dtype dtype_ = Dtype::float32;
  std::size_t offset_ = 0, bytes_ = 0;
};

}  // namespace emulation_tests
