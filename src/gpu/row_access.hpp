// How a kernel reads its weight and bias and writes its output. AlignedAccess moves whole packs
// without a branch and serves nearly all calls; AnyAccess serves the others, see unaligned.hpp. The
// host chooses, so that neither costs the other registers.
#pragma once

#include "gpu/packs.hpp"
#include "simple_layernorm/layer_norm.hpp"

namespace simple_layernorm::gpu {

/// Weight and bias as aligned packs of dtype Parameter, or absent.
template <class Element, class Parameter>
class RowParameters {
 public:
  static constexpr int kSize = kPackSize<Element>;
  using Parameters = PackedValues<Parameter, kSize>;
  /// float32 output from 16-bit input comes with float32 parameters under autocast.
  static constexpr bool kMayBeWide = sizeof(Element) == 2 && sizeof(Parameter) == 4;

  __device__ RowParameters(const LayerNormForward& a, Hide hide)
      : weight_(hidden(static_cast<const Parameter*>(a.weight), hide)),
        bias_(hidden(static_cast<const Parameter*>(a.bias), hide)),
        output_(a.output),
        wide_(a.wide_output) {}

  static bool fits(const LayerNormForward& a) {
    const auto fits_parameter = [](const void* data, Dtype dtype) {
      return data == nullptr || (dtype == kDtype<Parameter> && is_aligned(data));
    };
    return fits_parameter(a.weight, a.weight_dtype) && fits_parameter(a.bias, a.bias_dtype) &&
           (sizeof(Element) == 4 || kMayBeWide || !a.wide_output);
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

  /// Whether the output is float32 where Element is not.
  __device__ bool is_wide() const { return kMayBeWide && wide_; }
  /// Whether it keeps all digits of a float: see fine_offset.
  __device__ bool is_fine() const { return sizeof(Element) == 4 || is_wide(); }

 protected:
  /// The output of one column.
  __device__ float output_of(std::int64_t col, float x_hat) const {
    const float w = weight_ != nullptr ? gpu::load<float>(weight_ + col) : 1.0f;
    const float b = bias_ != nullptr ? gpu::load<float>(bias_ + col) : 0.0f;
    return fma(x_hat, w, b);
  }
  __device__ Element* narrow_output() const { return static_cast<Element*>(output_); }
  __device__ float* wide_output() const { return static_cast<float*>(output_); }

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

/// Rows of whole packs, aligned as these.
template <class Element, class Parameter>
class AlignedAccess : public RowParameters<Element, Parameter> {
  using Base = RowParameters<Element, Parameter>;

 public:
  using Base::Base, Base::kSize, Base::is_wide;
  static constexpr bool kIsAligned = true;
  static constexpr bool kHasTail = false;

  static bool fits(const LayerNormForward& a) {
    return a.cols % kSize == 0 && a.row_stride % kSize == 0 && is_aligned(a.input) &&
           is_aligned(a.output) && Base::fits(a);
  }

  /// Writes a pack of the output; i counts elements from its start.
  __device__ void store(std::int64_t i, const float (&y)[kSize]) const {
    if (!is_wide()) return store_aligned(this->narrow_output() + i, compress<Element>(y));
#pragma unroll
    for (int j = 0; j < kSize; j += 4) {
      const float four[4] = {y[j], y[j + 1], y[j + 2], y[j + 3]};
      store_aligned(this->wide_output() + i + j, compress<float>(four));
    }
  }
  __device__ void store_tail(std::int64_t, std::int64_t, float) const {}
};

/// Rows of any length, input and output at any address.
template <class Element, class Parameter>
class AnyAccess : public RowParameters<Element, Parameter> {
  using Base = RowParameters<Element, Parameter>;

 public:
  using Base::Base, Base::kSize, Base::is_wide;
  static constexpr bool kIsAligned = false;
  static constexpr bool kHasTail = true;

  /// Rare, and twice the registers: written element by element.
  __device__ void store_wide(std::int64_t i, const float (&y)[kSize]) const {
#pragma unroll
    for (int j = 0; j < kSize; ++j) this->wide_output()[i + j] = y[j];
  }
  __device__ Element* output() const { return this->narrow_output(); }

  /// Writes one of the columns after the last pack.
  __device__ void store_tail(std::int64_t i, std::int64_t col, float x_hat) const {
    const float y = this->output_of(col, x_hat);
    if (is_wide()) {
      this->wide_output()[i] = y;
    } else {
      gpu::store(this->narrow_output() + i, y);
    }
  }
};

/// Whether the kernels can take weight and bias as they are: of one dtype, aligned, and float32 if
/// that is what the output is.
template <class Element>
bool takes_parameters(const LayerNormForward& a) {
  return RowParameters<Element, Element>::fits(a) || RowParameters<Element, float>::fits(a);
}

/// with_access for parameters that are read as packs of Parameter.
template <class Element, class Parameter, class F>
void with_access_by(const LayerNormForward& a, F f) {
  if (AlignedAccess<Element, Parameter>::fits(a)) {
    f(static_cast<AlignedAccess<Element, Parameter>*>(nullptr));
  } else {
    f(static_cast<AnyAccess<Element, Parameter>*>(nullptr));
  }
}
/// Calls f with (a null pointer to) the access type that suits the call, whose parameters the
/// kernels can take.
template <class Element, class F>
void with_access(const LayerNormForward& a, F f) {
  if constexpr (sizeof(Element) == 2) {
    if (!RowParameters<Element, Element>::fits(a)) return with_access_by<Element, float>(a, f);
  }
  with_access_by<Element, Element>(a, f);
}

}  // namespace simple_layernorm::gpu
