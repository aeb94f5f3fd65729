// Elements in memory and the type they are computed in.
#pragma once

#include <cstdint>

#include "gpu/gpu_runtime.hpp"
#include "math/bits16.hpp"
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
constexpr Dtype kStatisticDtype =
    sizeof(Compute<Element>) == sizeof(double) ? Dtype::float64 : Dtype::float32;

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
  return to_float(*p);
}
template <class T>
__device__ T load(const BFloat16* p) {
  return to_float(*p);
}

template <class T>
__device__ void store(T* p, T value) {
  *p = value;
}
__device__ inline void store(Float16* p, float value) { *p = to_float16(value); }
__device__ inline void store(BFloat16* p, float value) { *p = to_bfloat16(value); }

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
