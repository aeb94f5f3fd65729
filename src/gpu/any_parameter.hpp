// A weight or bias as the kernels for misaligned rows read it.
#pragma once

#include "gpu/packs.hpp"

namespace simple_layernorm::gpu {

/// A weight or bias of any alignment and either dtype, or absent.
template <class Element>
class AnyParameter {
 public:
  static constexpr int kSize = kPackSize<Element>;

  __device__ AnyParameter(const void* data, Dtype dtype, float if_absent, Hide hide)
      : data_(hidden(static_cast<const char*>(data), hide)),
        is_float_(dtype == Dtype::float32),
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
    if (sizeof(Element) == 4 || is_float_) {
      load_as<float>(p, values);
    } else {
      load_as<Element>(p, values);
    }
  }

  __device__ void prefetch(std::int64_t col) const {
    if (data_ != nullptr) gpu::prefetch(address_of(col));
  }

 private:
  __device__ const char* address_of(std::int64_t col) const {
    return data_ + col * (sizeof(Element) == 4 || is_float_ ? sizeof(float) : sizeof(Element));
  }

  /// Columns of packs are aligned if the first one is.
  template <class T>
  __device__ void load_as(const void* address, float (&values)[kSize]) const {
    const T* const p = static_cast<const T*>(address);
    if (kMovesUnalignedPacks || is_aligned(data_)) {
      PackedValues<T, kSize>::load_packs(p).expand_to(values, {});
    } else {
#pragma unroll
      for (int i = 0; i < kSize; ++i) values[i] = gpu::load<float>(p + i);
    }
  }

  const char* data_;
  bool is_float_;
  float if_absent_;
};

}  // namespace simple_layernorm::gpu
