// One register of the level that this source is compiled for, and the few operations that need an
// instruction of it by name. All names of this header and those above it are local to the source
// that includes them: otherwise the linker could take one level's copy of a function for another's.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "math/bits16.hpp"
#include "math/inline.hpp"

// Everything between a kernel's loops and its registers is inlined. Not for AddressSanitizer: its
// checks make the compiler take minutes over the result.
#if defined(__SANITIZE_ADDRESS__)
#define KERNEL_INLINE inline
#define KERNEL_LAMBDA
#else
#define KERNEL_INLINE SIMPLE_LAYERNORM_INLINE
#define KERNEL_LAMBDA __attribute__((always_inline))
#endif

namespace simple_layernorm::cpu {
namespace {

/// Whether fma of a register rounds once, as std::fma does everywhere.
#if defined(__AVX2__)
constexpr bool kFusedRegisters = true;
#else
constexpr bool kFusedRegisters = false;
#endif

#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif

template <class T, int bytes>
struct RegisterOf {
  typedef T type __attribute__((vector_size(bytes)));
};
/// The compiler's own vector type, which has arithmetic and comparisons.
template <class T, int bytes = kRegisterBytes>
using Register = typename RegisterOf<T, bytes>::type;

using Floats = Register<float>;
using Doubles = Register<double>;
using Words = Register<std::uint32_t>;                       ///< two 16-bit elements in each
using Halves = Register<std::uint16_t, kRegisterBytes / 2>;  ///< as many as there are Floats

// fma: a * b + c, rounded once where the level has the instruction.
// root: the square root.
// float16_to_float, float_to_float16: as math/bits16.hpp has them, bit for bit.
#if defined(__AVX512F__)
KERNEL_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
KERNEL_INLINE Doubles fma(Doubles a, Doubles b, Doubles c) { return _mm512_fmadd_pd(a, b, c); }
KERNEL_INLINE Floats float16_to_float(Halves bits) { return _mm512_cvtph_ps((__m256i)bits); }
KERNEL_INLINE Halves float_to_float16(Floats v) {
  return (Halves)_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
}
KERNEL_INLINE Floats root(Floats v) { return _mm512_sqrt_ps(v); }
KERNEL_INLINE Doubles root(Doubles v) { return _mm512_sqrt_pd(v); }
#elif defined(__AVX2__)
KERNEL_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
KERNEL_INLINE Doubles fma(Doubles a, Doubles b, Doubles c) { return _mm256_fmadd_pd(a, b, c); }
KERNEL_INLINE Floats float16_to_float(Halves bits) { return _mm256_cvtph_ps((__m128i)bits); }
KERNEL_INLINE Halves float_to_float16(Floats v) {
  __m128i halves = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  // In a register: Zen 3 takes 2 cycles for the form that stores, 1 for this one and the store.
  asm("" : "+x"(halves));
  return (Halves)halves;
}
KERNEL_INLINE Floats root(Floats v) { return _mm256_sqrt_ps(v); }
KERNEL_INLINE Doubles root(Doubles v) { return _mm256_sqrt_pd(v); }
#else
template <class T>
KERNEL_INLINE T fma(T a, T b, T c) {
  return a * b + c;
}
template <class T>
KERNEL_INLINE T root(T v) {
  for (unsigned i = 0; i < sizeof v / sizeof v[0]; ++i) v[i] = std::sqrt(v[i]);
  return v;
}
// Out of line: long without the instruction.
__attribute__((noinline)) Floats float16_to_float(Halves bits) {
  Floats v;
  for (int i = 0; i < 4; ++i) v[i] = to_float(Float16{bits[i]});
  return v;
}
__attribute__((noinline)) Halves float_to_float16(Floats v) {
  Halves bits;
  for (int i = 0; i < 4; ++i) bits[i] = to_float16(v[i]).bits;
  return bits;
}
#endif

// bfloat16 is the upper half of a float, so that the two elements of a word become floats by a
// shift and a mask, without a move between lanes.
KERNEL_INLINE Floats lower_bfloat16(Words words) { return (Floats)(words << 16); }
KERNEL_INLINE Floats upper_bfloat16(Words words) { return (Floats)(words & 0xffff0000); }

// round_to_bfloat16: v rounded to nearest even, in the upper half of each word; the lower half is
// noise. It adds to the bits, which would carry a NaN of all ones into zero: the lower half of a
// NaN must be zero, as it is if the NaN comes from a 16-bit element or from arithmetic. Others go
// through with_one_nan(). pack_bfloat16: the upper halves of two such registers, as they lie in
// memory.
#if defined(__AVX512BW__)
/// Masks save a third of the instructions; vcvtne2ps2bf16 of AVX-512 BF16 takes 2.8
/// cycles for the 3.5 of these (Sapphire Rapids) and would lose subnormal numbers.
KERNEL_INLINE Words round_to_bfloat16(Floats v) {
  const __m512i bits = (__m512i)v;
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
  return (Words)_mm512_mask_add_epi32(rounded, odd, rounded, _mm512_set1_epi32(1));
}
KERNEL_INLINE Words pack_bfloat16(Words lower, Words upper) {
  const __m512i upper_halves =
      _mm512_broadcast_i32x4(_mm_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  return (Words)_mm512_mask_shuffle_epi8((__m512i)upper, 0x3333333333333333, (__m512i)lower,
                                         upper_halves);
}
#else
KERNEL_INLINE Words round_to_bfloat16(Floats v) {
  const Words bits = (Words)v;
  return bits + 0x7fff + (bits >> 16 & 1);
}
KERNEL_INLINE Words pack_bfloat16(Words lower, Words upper) {
#if defined(__AVX2__)
  return (Words)_mm256_blend_epi16((__m256i)(lower >> 16), (__m256i)upper, 0xaa);
#else
  return lower >> 16 | (upper & 0xffff0000);
#endif
}
#endif
/// Stores past the caches, to an address that is a multiple of the register's size.
template <class R>
KERNEL_INLINE void stream(void* p, R r) {
#if defined(__AVX512F__)
  if constexpr (sizeof(R) == 64) return _mm512_stream_si512(static_cast<__m512i*>(p), (__m512i)r);
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(R) == 32) return _mm256_stream_si256(static_cast<__m256i*>(p), (__m256i)r);
#endif
#if defined(__SSE2__)
  if constexpr (sizeof(R) == 16) return _mm_stream_si128(static_cast<__m128i*>(p), (__m128i)r);
  if constexpr (sizeof(R) == 8) return _mm_stream_si64(static_cast<long long*>(p), (long long)r);
#endif
  __builtin_memcpy(p, &r, sizeof r);
}
/// Makes streamed stores visible before whatever the thread stores next.
KERNEL_INLINE void finish_streams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// Sum of the lanes, in the same order for every width: the upper half is added to the lower one.
template <class T, int bytes = kRegisterBytes>
KERNEL_INLINE T total(Register<T, bytes> v) {
  if constexpr (bytes == sizeof(T)) {
    return v[0];
  } else {
    Register<T, bytes / 2> half[2];
    __builtin_memcpy(half, &v, sizeof v);
    return total<T, bytes / 2>(half[0] + half[1]);
  }
}

#if defined(__AVX512F__)
/// The totals of 16 registers: two at a time become one, which holds the halves of both.
KERNEL_INLINE Floats totals_of_16(const Floats* registers) {
  Floats eighths[8], quarters[4], halves[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const Floats a = registers[i], b = registers[i + 8];
    eighths[i] = _mm512_shuffle_f32x4(a, b, 0x44) + _mm512_shuffle_f32x4(a, b, 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Floats a = eighths[i], b = eighths[i + 4];
    quarters[i] = _mm512_shuffle_f32x4(a, b, 0x88) + _mm512_shuffle_f32x4(a, b, 0xdd);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const Floats a = quarters[i], b = quarters[i + 2];
    halves[i] = _mm512_shuffle_ps(a, b, 0x44) + _mm512_shuffle_ps(a, b, 0xee);
  }
  const Floats sums =
      _mm512_shuffle_ps(halves[0], halves[1], 0x88) + _mm512_shuffle_ps(halves[0], halves[1], 0xdd);
  const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
  return _mm512_permutexvar_ps(order, sums);
}
#elif defined(__AVX2__)
/// The totals of 8 registers, in the same way.
KERNEL_INLINE Floats totals_of_8(const Floats* registers) {
  Floats quarters[4], halves[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Floats a = registers[i], b = registers[i + 4];
    quarters[i] = _mm256_permute2f128_ps(a, b, 0x20) + _mm256_permute2f128_ps(a, b, 0x31);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const Floats a = quarters[2 * i], b = quarters[2 * i + 1];
    halves[i] = _mm256_shuffle_ps(a, b, 0x44) + _mm256_shuffle_ps(a, b, 0xee);
  }
  return _mm256_shuffle_ps(halves[0], halves[1], 0x88) +
         _mm256_shuffle_ps(halves[0], halves[1], 0xdd);
}
#endif

/// The totals of as many registers as each has lanes.
template <class T>
KERNEL_INLINE Register<T> totals(const Register<T>* registers) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == sizeof(float)) return totals_of_16(registers);
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == sizeof(float)) return totals_of_8(registers);
#endif
  Register<T> result;
#pragma GCC unroll 16
  for (unsigned i = 0; i < sizeof result / sizeof(T); ++i) result[i] = total<T>(registers[i]);
  return result;
}

}  // namespace
}  // namespace simple_layernorm::cpu
