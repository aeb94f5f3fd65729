// A weight as the backward kernels for misaligned rows read it.
#pragma once

#include "gpu/packs.hpp"

namespace simple_layernorm::gpu {

/// A weight of any alignment and either dtype, or absent.
template <class Element>
class AnyParameter {
 public:
  static constexpr int kSize = kPackSize<Element>;

  __device__ AnyParameter(const void* data, Dtype dtype, float if_absent)
      : data_(static_cast<const char*>(data)),
        is_float_(dtype == Dtype::float32),
        is_usual_(data != nullptr && dtype == kDtype<Element> &&
                  (kMovesUnalignedPacks || is_aligned(data))),
        if_absent_(if_absent) {}

  __device__ float operator[](std::int64_t col) const {
    return MixedArray<Element>(data_, is_float_ ? Dtype::float32 : kDtype<Element>,
                               if_absent_)[col];
  }

  /// The values of a pack that begins at `col`, if it exists.
  __device__ void load(std::int64_t col, bool exists, float (&values)[kSize]) const {
#pragma unroll
    for (float& value : values) value = if_absent_;
    if (!exists || data_ == nullptr) return;
    const char* const p = address_of(col);  // for both dtypes: addresses take many registers
    if (is_usual_) {
      load_packs<Element>(p, values);
    } else if (sizeof(Element) == 4 || !is_float_) {
      load_elements<Element>(p, values);
    } else if (kMovesUnalignedPacks || is_aligned(data_)) {
      load_packs<float>(p, values);
    } else {
      load_elements<float>(p, values);
    }
  }

 private:
  __device__ const char* address_of(std::int64_t col) const {
    return data_ + col * (sizeof(Element) == 4 || is_float_ ? sizeof(float) : sizeof(Element));
  }

  /// Columns of packs are aligned if the first one is.
  template <class T>
  static __device__ void load_packs(const char* p, float (&values)[kSize]) {
    using Values = PackedValues<T, kSize>;
    Values::load_packs(reinterpret_cast<const T*>(p)).expand_to(values, {});
  }
  template <class T>
  static __device__ void load_elements(const char* p, float (&values)[kSize]) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) values[i] = gpu::load<float>(reinterpret_cast<const T*>(p) + i);
  }

  const char* data_;
  bool is_float_;
  bool is_usual_;  ///< packs of Element, by one load each
  float if_absent_;
};

}  // namespace simple_layernorm::gpu
