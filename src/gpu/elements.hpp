// Elements in memory and the type they are computed in.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpu/gpu_runtime.hpp"
#include "math/bits16.hpp"
#include "math/layer_norm.hpp"
#include "simple_layernorm/dtype.hpp"

namespace simple_layernorm::gpu {

/// Type in which values of an Element are computed.
template <class Element>
struct ComputeType {
  using type = float;
};
template <>
struct ComputeType<double> {
  using type = double;
};
template <class Element>
using Compute = typename ComputeType<Element>::type;

template <class Element>
constexpr Dtype kDtype = Dtype::float32;
template <>
inline constexpr Dtype kDtype<double> = Dtype::float64;
template <>
inline constexpr Dtype kDtype<Float16> = Dtype::float16;
template <>
inline constexpr Dtype kDtype<BFloat16> = Dtype::bfloat16;

template <class Element>
constexpr Dtype kStatisticDtype =
    sizeof(Compute<Element>) == sizeof(double) ? Dtype::float64 : Dtype::float32;

/// rescue_scale, but float16 needs none: the squares of its values never leave float32's range.
template <class Element>
__device__ float rescue_scale_of(float m2, float eps) {
  return std::is_same_v<Element, Float16> ? 1.0f : rescue_scale(m2, eps);
}

template <class T>
__device__ T load(const float* p) {
  return *p;
}
template <class T>
__device__ T load(const double* p) {
  return *p;
}
template <class T>
__device__ T load(const Float16* p) {
  return float_from_float16(p->bits);
}
template <class T>
__device__ T load(const BFloat16* p) {
  return to_float(*p);
}

template <class T>
__device__ void store(T* p, T value) {
  *p = value;
}
__device__ inline void store(Float16* p, float value) {
  p->bits = static_cast<std::uint16_t>(pair_of_float16(value, value));
}
__device__ inline void store(BFloat16* p, float value) {
  p->bits = static_cast<std::uint16_t>(pair_of_bfloat16(value, value));
}

// An element's bits, in the low end of a word: its value is computed on use, so that nothing waits
// for the load before.
__device__ inline std::uint32_t raw_bits(const float* p) { return bits_of(*p); }
__device__ inline std::uint32_t raw_bits(const Float16* p) { return p->bits; }
__device__ inline std::uint32_t raw_bits(const BFloat16* p) { return p->bits; }

template <class T>
__device__ float value_of(std::uint32_t bits) {
  if constexpr (std::is_same_v<T, Float16>) {
    return float_from_float16(static_cast<std::uint16_t>(bits));
  } else {
    return float_of(std::is_same_v<T, BFloat16> ? bits << 16 : bits);
  }
}

/// An array whose dtype is known at run time: Element's, or float32. The branch is the same for all
/// threads.
template <class Element>
class MixedArray {
 public:
  __device__ MixedArray(const void* data, Dtype dtype, Compute<Element> if_absent)
      : data_(data), is_float_(dtype == Dtype::float32), if_absent_(if_absent) {}

  __device__ Compute<Element> operator[](std::int64_t i) const {
    if (data_ == nullptr) return if_absent_;
    if (is_float_) return load<Compute<Element>>(static_cast<const float*>(data_) + i);
    return load<Compute<Element>>(static_cast<const Element*>(data_) + i);
  }

 private:
  const void* data_;
  bool is_float_;
  Compute<Element> if_absent_;
};

/// Calls f(Element{}) for the element type that `dtype` names.
template <class F>
auto with_element_type(Dtype dtype, F f) {
  switch (dtype) {
    case Dtype::float64: return f(double{});
    case Dtype::float16: return f(Float16{});
    case Dtype::bfloat16: return f(BFloat16{});
    case Dtype::float32: break;
  }
  return f(float{});
}

/// The same without float64, which only the general kernels know.
template <class F>
void with_packed_type(Dtype dtype, F f) {
  if (dtype == Dtype::float16) return f(Float16{});
  if (dtype == Dtype::bfloat16) return f(BFloat16{});
  f(float{});
}

/// Calls f with the compile-time constant `index`, which lies in [0, kCount).
template <int kCount, class F>
void with_index(int index, F f) {
  if constexpr (kCount > 0) {
    if (index == kCount - 1) return f(std::integral_constant<int, kCount - 1>{});
    with_index<kCount - 1>(index, f);
  }
}

/// The same for a weight or bias, which has float32 or, with 16-bit input, the input's type.
template <class Compute, class F>
void with_parameter_type(Dtype dtype, F f) {
  if constexpr (sizeof(Compute) == sizeof(double)) {
    f(double{});
  } else if (dtype == Dtype::float16) {
    f(Float16{});
  } else if (dtype == Dtype::bfloat16) {
    f(BFloat16{});
  } else {
    f(float{});
  }
}

}  // namespace simple_layernorm::gpu
