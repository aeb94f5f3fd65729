// Where a backward kernel finds its rows, and how it reads its weight. As in row_access.hpp, one
// type for nearly all calls and one for the others; the host chooses.
#pragma once

#include "gpu/any_parameter.hpp"
#include "gpu/backward_plan.hpp"
#include "gpu/packs.hpp"
#include "simple_layernorm/layer_norm.hpp"

namespace simple_layernorm::gpu {

/// The rows of all arrays; grad_output is of dtype Grad.
template <class Element, class GradElement>
class GradientRows {
 public:
  using Grad = GradElement;
  static constexpr int kSize = kPackSize<Element>;
  using Grads = PackedValues<Grad, kSize>;
  static constexpr bool kIsWide = sizeof(Grad) > sizeof(Element);
  static constexpr Elements kElements = elements_of(sizeof(Element), sizeof(Grad));

  explicit __device__ GradientRows(const LayerNormBackward& a)
      : input_(static_cast<const Element*>(a.input)),
        grad_output_(static_cast<const Grad*>(a.grad_output)),
        grad_input_(static_cast<Element*>(a.grad_input)),
        row_stride_(a.row_stride),
        grad_output_row_stride_(a.grad_output_row_stride),
        cols_(a.cols) {}

  __device__ const Element* input(std::int64_t row) const { return input_ + row * row_stride_; }
  __device__ const Grad* grad_output(std::int64_t row) const {
    return grad_output_ + row * grad_output_row_stride_;
  }
  __device__ bool wants_grad_input() const { return grad_input_ != nullptr; }
  __device__ Element* grad_input(std::int64_t row) const { return grad_input_ + row * cols_; }

 private:
  const Element* input_;
  const Grad* grad_output_;
  Element* grad_input_;
  std::int64_t row_stride_;
  std::int64_t grad_output_row_stride_;
  std::int64_t cols_;
};

/// Everything aligned to packs; weight of dtype Parameter, or absent.
template <class Element, class Parameter, class Grad>
class AlignedGradients : public GradientRows<Element, Grad> {
 public:
  static constexpr int kSize = kPackSize<Element>;
  static constexpr bool kIsAligned = true;
  using Weights = PackedValues<Parameter, kSize>;

  explicit __device__ AlignedGradients(const LayerNormBackward& a)
      : GradientRows<Element, Grad>(a), weight_(static_cast<const Parameter*>(a.weight)) {}

  static bool fits(const LayerNormBackward& a) {
    return a.cols % kSize == 0 && a.row_stride % kSize == 0 &&
           a.grad_output_row_stride % kSize == 0 && is_aligned(a.input) &&
           is_aligned(a.grad_output) && is_aligned(a.grad_input) && is_aligned(a.weight) &&
           (a.weight == nullptr || a.weight_dtype == kDtype<Parameter>) &&
           a.output_dtype() == kDtype<Grad>;
  }

  __device__ Weights load_weights(std::int64_t col, bool exist) const {
    return exist && weight_ != nullptr ? Weights::load(weight_ + col) : Weights::all(1.0f);
  }

  // Aligned rows have no columns after the last pack.
  static constexpr bool kHasTail = false;
  __device__ float load_weight_tail(std::int64_t) const { return 0.0f; }

 private:
  const Parameter* weight_;
};

/// Any alignment; weight of Element's dtype or float32.
template <class Element, class Grad>
class AnyGradients : public GradientRows<Element, Grad> {
 public:
  static constexpr int kSize = kPackSize<Element>;
  static constexpr bool kIsAligned = false;
  using Weights = PackedValues<float, kSize>;

  explicit __device__ AnyGradients(const LayerNormBackward& a)
      : GradientRows<Element, Grad>(a), weight_(a.weight, a.weight_dtype, 1.0f) {}

  __device__ Weights load_weights(std::int64_t col, bool exist) const {
    float values[kSize];
    weight_.load(col, exist, values);
    return Weights::of(values);
  }

  static constexpr bool kHasTail = true;
  __device__ float load_weight_tail(std::int64_t col) const { return weight_[col]; }

 private:
  AnyParameter<Element> weight_;
};

/// Calls f with (a null pointer to) the access type that suits the call.
template <class Element, class F>
void with_gradient_access(const LayerNormBackward& a, F f) {
  using Same = AlignedGradients<Element, Element, Element>;
  if (Same::fits(a)) return f(static_cast<Same*>(nullptr));
  if constexpr (sizeof(Element) == 2) {
    using Mixed = AlignedGradients<Element, float, Element>;
    if (Mixed::fits(a)) return f(static_cast<Mixed*>(nullptr));
    using Wide = AlignedGradients<Element, float, float>;
    if (Wide::fits(a)) return f(static_cast<Wide*>(nullptr));
    if (a.wide_output) return f(static_cast<AnyGradients<Element, float>*>(nullptr));
  }
  f(static_cast<AnyGradients<Element, Element>*>(nullptr));
}

}  // namespace simple_layernorm::gpu
