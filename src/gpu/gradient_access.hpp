// How a backward kernel reads its rows and weight and writes grad_input. As in row_access.hpp, one
// type for nearly all calls and one for the others; the host chooses.
#pragma once

#include "gpu/packs.hpp"
#include "simple_layernorm/layer_norm.hpp"

namespace simple_layernorm::gpu {

/// Everything aligned to packs; weight of dtype Parameter, or absent; grad_output of dtype Grad.
template <class Element, class Parameter, class Grad>
class AlignedGradients {
 public:
  static constexpr int kSize = kPackSize<Element>;
  using Grads = PackedValues<Grad, kSize>;
  static constexpr bool kIsWide = sizeof(Grad) > sizeof(Element);
  using Weights = PackedValues<Parameter, kSize>;

  explicit __device__ AlignedGradients(const LayerNormBackward& a)
      : input_(static_cast<const Element*>(a.input)),
        grad_output_(static_cast<const Grad*>(a.grad_output)),
        weight_(static_cast<const Parameter*>(a.weight)),
        grad_input_(static_cast<Element*>(a.grad_input)),
        row_stride_(a.row_stride),
        grad_output_row_stride_(a.grad_output_row_stride),
        cols_(a.cols) {}

  static bool fits(const LayerNormBackward& a) {
    return a.cols % kSize == 0 && a.row_stride % kSize == 0 &&
           a.grad_output_row_stride % kSize == 0 && is_aligned(a.input) &&
           is_aligned(a.grad_output) && is_aligned(a.grad_input) && is_aligned(a.weight) &&
           (a.weight == nullptr || a.weight_dtype == kDtype<Parameter>) &&
           a.output_dtype() == kDtype<Grad>;
  }

  __device__ Pack load_input(std::int64_t row, std::int64_t col) const {
    return load_aligned(input_ + row * row_stride_ + col);
  }
  __device__ Grads load_grads(std::int64_t row, std::int64_t col) const {
    return Grads::load(grad_output_ + row * grad_output_row_stride_ + col);
  }
  __device__ Weights load_weights(std::int64_t col, bool exist) const {
    return exist && weight_ != nullptr ? Weights::load(weight_ + col) : Weights::all(1.0f);
  }
  __device__ void store(std::int64_t row, std::int64_t col, const float (&dx)[kSize]) const {
    if (grad_input_ != nullptr) {
      store_aligned(grad_input_ + row * cols_ + col, compress<Element>(dx));
    }
  }

  // Aligned rows have no columns after the last pack.
  static constexpr bool kHasTail = false;
  __device__ float load_input_tail(std::int64_t, std::int64_t) const { return 0.0f; }
  __device__ float load_grad_tail(std::int64_t, std::int64_t) const { return 0.0f; }
  __device__ float load_weight_tail(std::int64_t) const { return 0.0f; }
  __device__ void store_tail(std::int64_t, std::int64_t, float) const {}

 private:
  const Element* input_;
  const Grad* grad_output_;
  const Parameter* weight_;
  Element* grad_input_;
  std::int64_t row_stride_;
  std::int64_t grad_output_row_stride_;
  std::int64_t cols_;
};

/// Any alignment; grad_output of dtype Grad, weight of Element's dtype or float32.
template <class Element, class Grad>
class AnyGradients {
 public:
  static constexpr int kSize = kPackSize<Element>;
  using Grads = PackedValues<Grad, kSize>;
  static constexpr bool kIsWide = sizeof(Grad) > sizeof(Element);
  using Weights = PackedValues<float, kSize>;

  explicit __device__ AnyGradients(const LayerNormBackward& a)
      : input_(static_cast<const Element*>(a.input)),
        grad_output_(static_cast<const Grad*>(a.grad_output)),
        weight_(a.weight, a.weight_dtype, 1.0f),
        grad_input_(static_cast<Element*>(a.grad_input)),
        row_stride_(a.row_stride),
        grad_output_row_stride_(a.grad_output_row_stride),
        cols_(a.cols) {}

  __device__ Pack load_input(std::int64_t row, std::int64_t col) const {
    return load_elements(input_ + row * row_stride_ + col);
  }
  __device__ Grads load_grads(std::int64_t row, std::int64_t col) const {
    return Grads::load_elements(grad_output_ + row * grad_output_row_stride_ + col);
  }
  __device__ Weights load_weights(std::int64_t col, bool exist) const {
    Weights weights;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      weights.packs[i / 4].words[i % 4] = bits_of(exist ? weight_[col + i] : 1.0f);
    }
    return weights;
  }
  __device__ void store(std::int64_t row, std::int64_t col, const float (&dx)[kSize]) const {
#pragma unroll
    for (int i = 0; i < kSize; ++i) store_tail(row, col + i, dx[i]);
  }

  static constexpr bool kHasTail = true;
  __device__ float load_input_tail(std::int64_t row, std::int64_t col) const {
    return load<float>(input_ + row * row_stride_ + col);
  }
  __device__ float load_grad_tail(std::int64_t row, std::int64_t col) const {
    return load<float>(grad_output_ + row * grad_output_row_stride_ + col);
  }
  __device__ float load_weight_tail(std::int64_t col) const { return weight_[col]; }
  __device__ void store_tail(std::int64_t row, std::int64_t col, float dx) const {
    if (grad_input_ != nullptr) gpu::store(grad_input_ + row * cols_ + col, dx);
  }

 private:
  const Element* input_;
  const Grad* grad_output_;
  MixedArray<Element> weight_;
  Element* grad_input_;
  std::int64_t row_stride_;
  std::int64_t grad_output_row_stride_;
  std::int64_t cols_;
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
