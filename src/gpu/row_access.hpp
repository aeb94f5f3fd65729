// How a kernel reads its weight and bias and writes its output. AlignedAccess moves whole packs
// without a branch and serves nearly all calls; AnyAccess serves the others, see unaligned.hpp. The
// host chooses, so that neither costs the other registers.
#pragma once

#include "gpu/any_parameter.hpp"
#include "gpu/packs.hpp"
#include "simple_layernorm/layer_norm.hpp"

namespace simple_layernorm::gpu {

/// Everything aligned to packs; weight and bias of dtype Parameter, or absent.
template <class Element, class Parameter>
class AlignedAccess {
 public:
  static constexpr int kSize = kPackSize<Element>;
  static constexpr bool kIsAligned = true;
  /// float32 output from 16-bit input comes with float32 parameters under autocast.
  static constexpr bool kMayBeWide = sizeof(Element) == 2 && sizeof(Parameter) == 4;
  using Parameters = PackedValues<Parameter, kSize>;

  __device__ AlignedAccess(const LayerNormForward& a, Hide hide)
      : weight_(hidden(static_cast<const Parameter*>(a.weight), hide)),
        bias_(hidden(static_cast<const Parameter*>(a.bias), hide)),
        output_(a.output),
        wide_(a.wide_output) {}

  static bool fits(const LayerNormForward& a) {
    const auto aligned = [](const void* p) { return is_aligned(p); };
    const auto fits_parameter = [&](const void* data, Dtype dtype) {
      return data == nullptr || (dtype == kDtype<Parameter> && aligned(data));
    };
    return a.cols % kSize == 0 && a.row_stride % kSize == 0 && aligned(a.input) &&
           aligned(a.output) && fits_parameter(a.weight, a.weight_dtype) &&
           fits_parameter(a.bias, a.bias_dtype) && (kMayBeWide || !a.wide_output);
  }

  /// Weight and bias of the columns from `col` on, if that pack exists. kKeep: see load_kept.
  template <bool kKeep>
  __device__ void load(std::int64_t col, bool exists, float (&w)[kSize], float (&b)[kSize]) const {
    weights<kKeep>(col, exists).expand_to(w, {});
    biases<kKeep>(col, exists).expand_to(b, {});
  }
  template <bool kKeep = false>
  __device__ Parameters weights(std::int64_t col, bool exist) const {
    return parameters<kKeep>(weight_, 1.0f, col, exist);
  }
  template <bool kKeep = false>
  __device__ Parameters biases(std::int64_t col, bool exist) const {
    return parameters<kKeep>(bias_, 0.0f, col, exist);
  }

  __device__ void touch(std::int64_t col) const {
    if (weight_ != nullptr) gpu::touch(weight_ + col);
    if (bias_ != nullptr) gpu::touch(bias_ + col);
  }

  /// Writes a pack of the output; i counts elements from its start.
  __device__ void store(std::int64_t i, const float (&y)[kSize]) const {
    if (!kMayBeWide || !wide_) {
      store_aligned(static_cast<Element*>(output_) + i, compress<Element>(y));
      return;
    }
#pragma unroll
    for (int j = 0; j < kSize; j += 4) {
      const float four[4] = {y[j], y[j + 1], y[j + 2], y[j + 3]};
      store_aligned(static_cast<float*>(output_) + i + j, compress<float>(four));
    }
  }

  // Aligned rows have no columns after the last pack.
  static constexpr bool kHasTail = false;
  __device__ void store_tail(std::int64_t, std::int64_t, float) const {}

  /// Whether the output keeps all digits of a float: see fine_offset.
  static constexpr bool kMayBeFine = sizeof(Element) == 4 || kMayBeWide;
  __device__ bool is_fine() const { return sizeof(Element) == 4 || wide_; }

 private:
  template <bool kKeep>
  static __device__ Parameters parameters(const Parameter* p, float if_absent, std::int64_t col,
                                          bool exist) {
    if (!exist || p == nullptr) return Parameters::all(if_absent);
    return Parameters::template load<kKeep>(p + col);
  }

  const Parameter* weight_;
  const Parameter* bias_;
  void* output_;
  bool wide_;
};

/// Any alignment; weight and bias of Element's dtype or float32, or absent, each for itself; output
/// of Element or float32.
template <class Element>
class AnyAccess {
 public:
  static constexpr int kSize = kPackSize<Element>;
  static constexpr bool kIsAligned = false;

  __device__ AnyAccess(const LayerNormForward& a, Hide hide)
      : weight_(a.weight, a.weight_dtype, 1.0f, hide),
        bias_(a.bias, a.bias_dtype, 0.0f, hide),
        output_(a.output),
        wide_(a.wide_output) {}

  template <bool kKeep>
  __device__ void load(std::int64_t col, bool exists, float (&w)[kSize], float (&b)[kSize]) const {
    weight_.load(col, exists, w);
    bias_.load(col, exists, b);
  }
  using Parameters = PackedValues<float, kSize>;
  __device__ Parameters weights(std::int64_t col, bool exist) const {
    return parameters(weight_, col, exist);
  }
  __device__ Parameters biases(std::int64_t col, bool exist) const {
    return parameters(bias_, col, exist);
  }
  __device__ void touch(std::int64_t col) const {
    weight_.touch(col);
    bias_.touch(col);
  }

  /// Whether the output is float32 where Element is not. Rare, and twice the registers: written
  /// element by element.
  __device__ bool is_wide() const { return sizeof(Element) == 2 && wide_; }
  static constexpr bool kMayBeFine = true;
  __device__ bool is_fine() const { return sizeof(Element) == 4 || wide_; }
  __device__ void store_wide(std::int64_t i, const float (&y)[kSize]) const {
#pragma unroll
    for (int j = 0; j < kSize; ++j) static_cast<float*>(output_)[i + j] = y[j];
  }
  __device__ Element* output() const { return static_cast<Element*>(output_); }

  static constexpr bool kHasTail = true;
  /// Writes one of the columns after the last pack.
  __device__ void store_tail(std::int64_t i, std::int64_t col, float x_hat) const {
    const float y = fma(x_hat, weight_[col], bias_[col]);
    if (wide_) {
      static_cast<float*>(output_)[i] = y;
    } else {
      gpu::store(static_cast<Element*>(output_) + i, y);
    }
  }

 private:
  static __device__ Parameters parameters(const AnyParameter<Element>& p, std::int64_t col,
                                          bool exist) {
    float values[kSize];
    p.load(col, exist, values);
    return Parameters::of(values);
  }

  AnyParameter<Element> weight_;
  AnyParameter<Element> bias_;
  void* output_;
  bool wide_;
};

/// Calls f with (a null pointer to) the access type that suits the call.
template <class Element, class F>
void with_access(const LayerNormForward& a, F f) {
  if (AlignedAccess<Element, Element>::fits(a)) {
    return f(static_cast<AlignedAccess<Element, Element>*>(nullptr));
  }
  if constexpr (sizeof(Element) == 2) {
    if (AlignedAccess<Element, float>::fits(a)) {
      return f(static_cast<AlignedAccess<Element, float>*>(nullptr));
    }
  }
  f(static_cast<AnyAccess<Element>*>(nullptr));
}

}  // namespace simple_layernorm::gpu
