// float16 and bfloat16 as raw bits, with conversions that round to nearest even and keep NaN. Exact
// on every compiler; a backend may replace the float16 ones by the machine's instruction.
#pragma once

#include <cstdint>

#include "math/inline.hpp"

namespace simple_layernorm {

struct BFloat16 {
  std::uint16_t bits;
};

struct Float16 {
  std::uint16_t bits;
};

SIMPLE_LAYERNORM_INLINE std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}

SIMPLE_LAYERNORM_INLINE float float_of(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

SIMPLE_LAYERNORM_INLINE float to_float(BFloat16 value) {
  return float_of(std::uint32_t{value.bits} << 16);
}

SIMPLE_LAYERNORM_INLINE BFloat16 to_bfloat16(float value) {
  const std::uint32_t bits = bits_of(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return {static_cast<std::uint16_t>(is_nan ? (bits >> 16 | 0x40u) : rounded)};
}

SIMPLE_LAYERNORM_INLINE float to_float(Float16 value) {
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000u} << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  // Shifting the exponent into place makes it 112 too small; the product puts that right and
  // normalises subnormals on the way. Infinity and NaN need the largest exponent instead.
  const float scaled = float_of(magnitude << 13) * 0x1p112f;
  const std::uint32_t bits =
      magnitude >= 0x7c00u ? (magnitude << 13 | 0x7f800000u) : bits_of(scaled);
  return float_of(sign | bits);
}

SIMPLE_LAYERNORM_INLINE Float16 to_float16(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x1ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the subnormal's bits last
    half = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return {static_cast<std::uint16_t>(sign | half)};
}

}  // namespace simple_layernorm
