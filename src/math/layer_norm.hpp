// The formula of LayerNorm, written once for every backend. It knows neither loops nor hardware: a
// backend brings the sums over a row and the loads and stores.
//
// Forward, of a row x of n values, by a corrected two-pass algorithm:
//
//   pass 1   m  = the average of some of the row's values, or of all: a number near the mean
//   pass 2   s1 = sum (x - m),  s2 = sum (x - m)^2
//            mean     = m + s1 / n              kept as two numbers: near m, x - m is exact
//            variance = (s2 - s1^2 / n) / n
//   output   x_hat = ((x - m) - s1 / n) * rstd,  y = x_hat * weight + bias
//            rstd is two numbers too, if y is not rounded to 16 bits: its rounding alone would be
//            one unit in the last place of x_hat
//
// Values that are a share f of the row have an average whose squared distance from the mean is at
// most (1 / f - 1) times the variance, whatever they are: the subtraction in `variance` then loses
// no more than a factor 1 / f of its precision, and for most rows nothing. GPUs take an eighth of a
// row at least (of narrow 16-bit rows the first value), the CPU all of it or the first columns.
//
// E[x^2] - mean^2 would lose all digits once |mean| >> spread, and a plain two-pass algorithm is
// wrong by the rounding of m: a float32 row of mean 1e4 and spread 1e-3 comes out 0.1 off without
// s1. (Chan, Golub, LeVeque: Algorithms for computing the sample variance, 1983: 1.7 is the
// correction, 2.1 the merge of two parts.)
//
// T is float or double; functions of single elements also take a vector of them: any type with + -
// * and an overload of fma.
#pragma once

#include <cmath>

#include "math/inline.hpp"

namespace simple_layernorm {

/// Properties of the type that statistics are computed in. Constants, because std::numeric_limits
/// cannot be called from device code everywhere.
template <class T>
struct Limits;
template <>
struct Limits<float> {
  static constexpr float largest = 0x1.fffffep127f;
  static constexpr float smallest_normal = 0x1p-126f;
  static constexpr float smallest_square = 0x1p-102f;  ///< smallest_normal / epsilon
  static constexpr float shrink = 0x1p-100f;           ///< see rescue_scale
  static constexpr float grow = 0x1p100f;
};
template <>
struct Limits<double> {
  static constexpr double largest = 0x1.fffffffffffffp1023;
  static constexpr double smallest_normal = 0x1p-1022;
  static constexpr double smallest_square = 0x1p-969;
  static constexpr double shrink = 0x1p-800;
  static constexpr double grow = 0x1p800;
};

/// Mean and centred squares of some values of a row: mean is head + tail, m2 = sum (x - mean)^2.
template <class T>
struct Moments {
  T head;
  T tail;
  T m2;
};

/// a / b but for its last digits: on a GPU without the branch for numbers near the ends of the
/// range.
template <class T>
SIMPLE_LAYERNORM_INLINE T rough_quotient(T a, T b) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == sizeof(float)) return __fdividef(a, b);
#elif defined(__AMDGCN__)
  if constexpr (sizeof(T) == sizeof(float)) return a * __builtin_amdgcn_rcpf(b);
#endif
  return a / b;
}

/// Moments of n values from the sums of pass 2 about `shift`. Takes 1 / n: a caller divides once.
template <class T>
SIMPLE_LAYERNORM_INLINE Moments<T> moments_of(T shift, T s1, T s2, T inverse_n) {
  using std::fma;
  const T tail = s1 * inverse_n;
  return {shift, tail, fma(-s1, tail, s2)};
}

/// Moments of two disjoint sets of values, of a_count and b_count values. A set of no values leaves
/// the other's moments as they are, bit for bit.
template <class T>
SIMPLE_LAYERNORM_INLINE Moments<T> merge(Moments<T> a, T a_count, Moments<T> b, T b_count) {
  const T share = a_count == b_count ? T(0.5) : rough_quotient(b_count, a_count + b_count);
  const T delta = (b.head - a.head) + (b.tail - a.tail);
  // The merged mean, a + delta * share, split into two numbers again without an error (Knuth).
  const T step = std::fma(delta, share, a.tail);
  const T head = a.head + step;
  const T rounded = head - a.head;
  const T tail = (a.head - (head - rounded)) + (step - rounded);
  const T m2 = std::fma(delta * delta, a_count * share, a.m2 + b.m2);
  const bool a_empty = a_count == T(0);
  const bool b_empty = b_count == T(0);
  return {b_empty   ? a.head
          : a_empty ? b.head
                    : head,
          b_empty   ? a.tail
          : a_empty ? b.tail
                    : tail,
          b_empty   ? a.m2
          : a_empty ? b.m2
                    : m2};
}

/// Power of two to multiply a row with before its moments are taken again, because their squares
/// left the range of T; 1 for every ordinary row. An underflow does no harm unless eps is as small
/// as the squares that it lost.
///
/// One factor for each direction is enough for rows of up to 2^28 (double: 2^40) values. In
/// float32, an overflow means that some |x - mean| >= 2^50, so that shrunken squares lie within
/// 2^-100...2^84; an underflow means that all are < 2^-51, so that grown squares lie within
/// 2^-98...2^98.
template <class T>
SIMPLE_LAYERNORM_INLINE T rescue_scale(T m2, T eps) {
  if (!(m2 <= Limits<T>::largest)) return Limits<T>::shrink;
  const bool lost = m2 < Limits<T>::smallest_square && eps < Limits<T>::smallest_square;
  return lost ? Limits<T>::grow : T(1);
}

/// All that a row's outputs depend on besides its values, weight and bias.
template <class T>
struct RowStatistics {
  T scale;      ///< what the row was multiplied with: 1, or a rescue_scale
  T shift;      ///< head of the scaled row's mean
  T tail;       ///< tail of it
  T rstd;       ///< 1 / sqrt(variance + eps) of the scaled row, rounded
  T rstd_tail;  ///< what the rounding took off
  T offset;     ///< -tail * rstd

  /// Mean and rstd of the row as it was before scaling, as the backward pass takes them.
  SIMPLE_LAYERNORM_INLINE T unscaled_mean() const {
    return scale == T(1) ? shift + tail : (shift + tail) / scale;
  }
  SIMPLE_LAYERNORM_INLINE T unscaled_rstd() const { return rstd * scale; }
};

/// A number as the nearest T and what that leaves out.
template <class T>
struct HeadAndTail {
  T head;
  T tail;
};

/// 1 / sqrt(x) but for its last digits: on a GPU one instruction.
template <class T>
SIMPLE_LAYERNORM_INLINE T rough_inverse_root(T x) {
#if defined(__CUDA_ARCH__) || defined(__AMDGCN__)
  return rsqrt(x);
#else
  using std::sqrt;
  return T(1) / sqrt(x);
#endif
}

/// 1 / sqrt(x). A Newton step, whose error term is formed without rounding, finds what a rough root
/// lacks: it would reach every element of the row.
template <class T>
SIMPLE_LAYERNORM_INLINE HeadAndTail<T> inverse_root(T x) {
  using std::fma;
  const T y = rough_inverse_root(x);
  const T xy = x * y;
  const T error = fma(-xy, y, T(1)) - fma(x, y, -xy) * y;
  const T step = T(0.5) * y * error;
  const T head = y + step;
  return {head, step - (head - y)};
}

/// m2 / n, rounded as a division is, with a reciprocal that a loop over rows takes once.
template <class T>
SIMPLE_LAYERNORM_INLINE T variance_of(T m2, T n, T inverse_n) {
  using std::fma;
  const T quotient = m2 * inverse_n;
  return fma(fma(-quotient, n, m2), inverse_n, quotient);
}

/// Statistics of a row of n values from its moments, taken after it was multiplied with `scale`.
/// Takes 1 / n: a caller divides once.
template <class T>
SIMPLE_LAYERNORM_INLINE RowStatistics<T> row_statistics(Moments<T> row, T n, T inverse_n, T eps,
                                                        T scale) {
  // One NaN for all, so that its bits do not tell how the moments were merged.
  if (row.m2 != row.m2) return {scale, T(NAN), T(NAN), T(NAN), T(NAN), T(NAN)};
  const T m2 = row.m2 < T(0) ? T(0) : row.m2;
  const T variance = variance_of(m2, n, inverse_n);
  T scaled_eps = eps * scale * scale;
  // A constant row stays finite when shrinking makes its eps vanish.
  if (eps > T(0) && scaled_eps < Limits<T>::smallest_normal) {
    scaled_eps = Limits<T>::smallest_normal;
  }
  if (scale == T(1)) scaled_eps = eps;
  const HeadAndTail<T> rstd = inverse_root(variance + scaled_eps);
  return {scale, row.head, row.tail, rstd.head, rstd.tail, -row.tail * rstd.head};
}

/// The offset to normalise one element with where the output keeps all digits of T. An output of 16
/// bits takes the row's: rstd's tail is far below its rounding.
template <class T>
SIMPLE_LAYERNORM_INLINE T fine_offset(T x, T shift, T rstd_tail, T offset) {
  using std::fma;
  return fma(x - shift, rstd_tail, offset);
}

/// x_hat of one element of the scaled row.
template <class T>
SIMPLE_LAYERNORM_INLINE T normalise(T x, T shift, T rstd, T offset) {
  using std::fma;
  return fma(x - shift, rstd, offset);
}

// Gradients of a row, from the stored (rounded) mean and rstd. With g the gradient of the output,
// h = g * weight, and <.> the average over the row:
//
//   x0          = (x - mean) * rstd          x_hat but for the rounding of mean
//   x_hat       = x0 - <x0>                  which <x0> takes out, as s1 does in the forward pass
//   grad_input  = rstd * (h - <h> - x_hat * <h x_hat>),   <h x_hat> = <h x0> - <h> <x0>
//   grad_weight = sum over rows of g * x_hat
//   grad_bias   = sum over rows of g

/// The three averages over a row that its gradients depend on.
template <class T>
struct GradientAverages {
  T x0;
  T h;
  T h_x_hat;
};

/// From the sums of x0, h and h * x0 over a row of n values.
template <class T>
SIMPLE_LAYERNORM_INLINE GradientAverages<T> gradient_averages(T sum_x0, T sum_h, T sum_h_x0,
                                                              T inverse_n) {
  const T x0 = sum_x0 * inverse_n;
  return {x0, sum_h * inverse_n, std::fma(-sum_h, x0, sum_h_x0) * inverse_n};
}

/// x0 of one element.
template <class T>
SIMPLE_LAYERNORM_INLINE T normalise_stored(T x, T mean, T rstd) {
  return (x - mean) * rstd;
}

/// grad_input of one element. The average is taken off first, where no rounding has entered yet: h
/// of a single column, or of a row of equal ones, leaves exactly nothing.
template <class T>
SIMPLE_LAYERNORM_INLINE T input_gradient(T h, T x_hat, T h_average, T h_x_hat_average, T rstd) {
  using std::fma;
  return fma(-x_hat, h_x_hat_average, h - h_average) * rstd;
}

}  // namespace simple_layernorm
