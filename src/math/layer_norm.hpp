// The formula of LayerNorm, written once for every backend. It knows neither loops nor hardware: a
// backend brings the sums over a row and the loads and stores.
//
// Statistics of a row x of n values, by a corrected two-pass algorithm:
//
//   pass 1   m  = (sum x) / n                 rounded, so in general not the mean
//   pass 2   s1 = sum (x - m),  s2 = sum (x - m)^2
//            mean     = m + s1 / n            kept as two numbers: near m, x - m is exact
//            variance = (s2 - s1^2 / n) / n
//
// E[x^2] - mean^2 would lose all digits once |mean| >> spread, and a plain two-pass algorithm is
// wrong by the rounding of m: a float32 row of mean 1e4 and spread 1e-3 comes out 0.1 off without
// s1. (Chan, Golub, LeVeque: Algorithms for computing the sample variance, 1983, equation 1.7.)
//
// T is float, double, or any type with + - * / and an overload of fma: a vector of either.
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
  static constexpr float smallest_normal = 0x1p-126f;
  static constexpr float largest = 0x1.fffffep127f;
  static constexpr float epsilon = 0x1p-23f;
  static constexpr int largest_scale_exponent = 120;
};
template <>
struct Limits<double> {
  static constexpr double smallest_normal = 0x1p-1022;
  static constexpr double largest = 0x1.fffffffffffffp1023;
  static constexpr double epsilon = 0x1p-52;
  static constexpr int largest_scale_exponent = 1000;
};

/// The two sums of pass 2.
template <class T>
struct CentredSums {
  T first;   ///< s1
  T second;  ///< s2
};

/// All that a row's outputs depend on besides its values.
template <class T>
struct RowStatistics {
  T scale;       ///< power of two that the row is multiplied by first; 1 but for extreme rows
  T shift;       ///< m, the rounded mean of the scaled row
  T correction;  ///< s1 / n, what m lacks
  T rstd;        ///< 1 / sqrt(variance + eps) of the scaled row

  /// Mean and rstd of the row as it was before scaling, as the backward pass takes them.
  SIMPLE_LAYERNORM_INLINE T unscaled_mean() const { return (shift + correction) / scale; }
  SIMPLE_LAYERNORM_INLINE T unscaled_rstd() const { return rstd * scale; }
};

template <class T>
SIMPLE_LAYERNORM_INLINE RowStatistics<T> row_statistics(T scale, T shift, CentredSums<T> sums, T n,
                                                        T eps) {
  const T correction = sums.first / n;
  const T squares = std::fma(-sums.first, correction, sums.second);
  const T variance = (squares < T(0) ? T(0) : squares) / n;
  // A constant row stays finite when scaling makes its eps vanish.
  const T scaled_eps = scale < T(1) && eps > T(0)
                           ? std::fmax(eps * scale * scale, Limits<T>::smallest_normal)
                           : eps * scale * scale;
  return {scale, shift, correction, T(1) / std::sqrt(variance + scaled_eps)};
}

/// Whether the squares left the range of T, so that the statistics must be computed again from a
/// scaled row. False for common rows at the cost of a comparison; an underflow does no harm unless
/// eps is as small as the squares that it lost.
template <class T>
SIMPLE_LAYERNORM_INLINE bool needs_scaling(CentredSums<T> sums, T eps) {
  constexpr T kTiny = Limits<T>::smallest_normal / Limits<T>::epsilon;
  const bool overflow = !(sums.second <= Limits<T>::largest);
  return overflow || (sums.second < kTiny && eps < kTiny);
}

/// Power of two that brings a row with this largest |x| to about 1, but eps to no more than 1.
/// 1 if there is none: the row is zero, or holds infinity or NaN.
template <class T>
SIMPLE_LAYERNORM_INLINE T scale_of(T largest_magnitude, T eps) {
  if (!(largest_magnitude > T(0)) || !(largest_magnitude <= Limits<T>::largest)) return T(1);
  const int wanted = -std::ilogb(largest_magnitude);
  const int most = eps > T(0) ? -std::ilogb(eps) / 2 : Limits<T>::largest_scale_exponent;
  return std::ldexp(T(1), wanted < most ? wanted : most);
}

template <class T>
SIMPLE_LAYERNORM_INLINE T normalise(T x, T scale, T shift, T correction, T rstd) {
  return ((x * scale - shift) - correction) * rstd;
}

// Gradients of a row, from the stored (rounded) mean and rstd. With g the gradient of the output,
// h = g * weight, and <.> the average over the row:
//
//   x0          = (x - mean) * rstd          x_hat but for the rounding of mean
//   x_hat       = x0 - <x0>                  which <x0> takes out, as s1 does in the forward pass
//   grad_input  = rstd * (h - <h> - x_hat * <h x_hat>),   <h x_hat> = <h x0> - <h> <x0>
//   grad_weight = sum over rows of g * x_hat
//   grad_bias   = sum over rows of g

/// The three sums over a row that its gradients depend on.
template <class T>
struct GradientSums {
  T x0;
  T h;
  T h_x0;
};

/// The averages made of them.
template <class T>
struct GradientAverages {
  T x0;
  T h;
  T h_x_hat;
};

template <class T>
SIMPLE_LAYERNORM_INLINE GradientAverages<T> gradient_averages(GradientSums<T> sums, T n) {
  const T x0 = sums.x0 / n;
  return {x0, sums.h / n, std::fma(-sums.h, x0, sums.h_x0) / n};
}

template <class T>
SIMPLE_LAYERNORM_INLINE T normalise_stored(T x, T mean, T rstd) {
  return (x - mean) * rstd;
}

template <class T>
SIMPLE_LAYERNORM_INLINE T input_gradient(T h, T x_hat, T h_average, T h_x_hat_average, T rstd) {
  return ((h - h_average) - x_hat * h_x_hat_average) * rstd;
}

}  // namespace simple_layernorm
