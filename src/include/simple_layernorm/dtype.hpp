// Element types that the kernels know. Standard library only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simple_layernorm {

/// Type of the elements behind an untyped pointer. The 16-bit types are stored as raw IEEE binary16
/// and bfloat16 bit patterns; no compiler support for them is needed to call this library.
enum class Dtype : std::uint8_t { float32, float64, float16, bfloat16 };

/// Bytes that one element of `dtype` takes.
constexpr std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64: return 8;
    case Dtype::float32: return 4;
    case Dtype::float16:
    case Dtype::bfloat16: return 2;
  }
  return 0;
}

/// Type in which the statistics of a row of `dtype` are computed and kept: float64 for float64,
/// float32 for everything else.
constexpr Dtype statistic_dtype(Dtype dtype) {
  return dtype == Dtype::float64 ? Dtype::float64 : Dtype::float32;
}

}  // namespace simple_layernorm
