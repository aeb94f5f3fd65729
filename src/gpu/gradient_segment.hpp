// The backward pass on a segment (see segment.hpp): what a lane reads of a row, the sums that it
// adds to, the gradients that follow from them.
#pragma once

#include "gpu/gradient_access.hpp"
#include "gpu/segment.hpp"

namespace simple_layernorm::gpu {

/// Where a thread keeps what it needs for every row: in registers or, where it takes most of them,
/// in shared memory that no other thread touches.
template <int kCount, bool kInSharedMemory>
class PrivatePacks {
 public:
  explicit __device__ PrivatePacks(Pack* memory) : own_(memory + threadIdx.x) {}
  __device__ Pack& operator[](int i) { return own_[i * blockDim.x]; }
  __device__ const Pack& operator[](int i) const { return own_[i * blockDim.x]; }

 private:
  Pack* own_;
};

template <int kCount>
class PrivatePacks<kCount, false> {
 public:
  explicit __device__ PrivatePacks(Pack*) {}
  __device__ Pack& operator[](int i) { return packs_[i]; }
  __device__ const Pack& operator[](int i) const { return packs_[i]; }

 private:
  Pack packs_[kCount];
};

/// Sums of the parameter gradients over the rows that a thread has seen, for its columns: kPacks
/// packs of kSize values.
template <int kPacks, int kSize, bool kInSharedMemory>
class Accumulators {
  static constexpr int kParts = kSize / 4;  ///< packs of floats

 public:
  static constexpr int kCount = 2 * kParts * kPacks;

  explicit __device__ Accumulators(Pack* memory) : packs_(memory) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) packs_[i] = Pack{};
  }

  /// Adds g * x_hat and g of pack k.
  __device__ __forceinline__ void add(int k, const float (&x_hat)[kSize], const float (&g)[kSize]) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float weight[4], bias[4];
      expand<float>(weight_of(k, part), weight, {});
      expand<float>(bias_of(k, part), bias, {});
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weight[i] = fma(g[part * 4 + i], x_hat[part * 4 + i], weight[i]);
        bias[i] += g[part * 4 + i];
      }
      weight_of(k, part) = compress<float>(weight);
      bias_of(k, part) = compress<float>(bias);
    }
  }

  /// Four values from value 4 * part of pack k on.
  __device__ Pack& weight_of(int k, int part) { return packs_[2 * k * kParts + part]; }
  __device__ Pack& bias_of(int k, int part) { return packs_[(2 * k + 1) * kParts + part]; }

  float weight_tail = 0.0f, bias_tail = 0.0f;

 private:
  PrivatePacks<kCount, kInSharedMemory> packs_;
};

template <int kSize>
__device__ float sum_of_products(const float (&x)[kSize], const float (&y)[kSize]) {
  float even = x[0] * y[0];
  float odd = x[1] * y[1];
#pragma unroll
  for (int i = 2; i < kSize; i += 2) {
    even = fma(x[i], y[i], even);
    odd = fma(x[i + 1], y[i + 1], odd);
  }
  return even + odd;
}

template <class Element, class Access, int kLanes, int kPacks, bool kUsesSharedMemory>
class GradientSegment {
  using Weights = typename Access::Weights;

 public:
  static constexpr int kSize = kPackSize<Element>;
  using Sums = Accumulators<kPacks, kSize, kUsesSharedMemory>;

  /// Dynamic shared memory that a thread takes, of which the accumulators come first.
  static constexpr std::size_t kSharedBytes =
      kUsesSharedMemory ? sizeof(Pack) * (Sums::kCount + kPacks * Weights::kCount) : 0;

  /// What is read of a row.
  struct Row {
    Pack x[kPacks];
    typename Access::Grads g[kPacks];
    float x_tail, g_tail;
    float mean, rstd;
  };

  /// The segment that starts at pack `first` of every row; its weights are read here, once.
  __device__ __forceinline__ GradientSegment(const LayerNormBackward& a, int first, Pack* memory)
      : access_(a),
        weights_(memory + Sums::kCount * blockDim.x),
        mean_(static_cast<const float*>(a.mean)),
        rstd_(static_cast<const float*>(a.rstd)) {
    columns_.place(RowShape<Element>(a.cols), first, first == 0);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const Weights weights = access_.load_weights(columns_.col_of(k), columns_.holds(k));
#pragma unroll
      for (int i = 0; i < Weights::kCount; ++i) {
        weights_[k * Weights::kCount + i] = weights.packs[i];
      }
    }
    weight_tail_ = columns_.owns_tail() ? access_.load_weight_tail(columns_.tail_col()) : 0.0f;
  }

  __device__ __forceinline__ void load(std::int64_t row, Row& r) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const std::int64_t col = columns_.col_of(k);
      r.x[k] = columns_.holds(k) ? access_.load_input(row, col) : Pack{};
      r.g[k] = columns_.holds(k) ? access_.load_grads(row, col) : typename Access::Grads{};
    }
    const bool owns_tail = columns_.owns_tail();
    r.x_tail = owns_tail ? access_.load_input_tail(row, columns_.tail_col()) : 0.0f;
    r.g_tail = owns_tail ? access_.load_grad_tail(row, columns_.tail_col()) : 0.0f;
    r.mean = mean_[row];
    r.rstd = rstd_[row];
  }

  /// The lane's part of the sums of x0, h and h * x0: see gradient_averages.
  __device__ __forceinline__ void sums_of(const Row& r, float (&sums)[3], Hide hide) const {
    const float x0_tail = normalise_stored(r.x_tail, r.mean, r.rstd);
    const float h_tail = r.g_tail * weight_tail_;
    sums[0] = columns_.owns_tail() ? x0_tail : 0.0f;
    sums[1] = h_tail;
    sums[2] = h_tail * x0_tail;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float x0[kSize], g[kSize], h[kSize];
      expand_row(r, k, x0, g, h, hide);
#pragma unroll
      for (float& x : x0) x = normalise_stored(x, r.mean, r.rstd);
      const float first = sum_of(x0);
      sums[0] += columns_.holds(k) ? first : 0.0f;  // of h it is zero
      sums[1] += sum_of(h);
      sums[2] += sum_of_products(h, x0);
    }
  }

  /// Writes grad_input of a row and adds its share of the parameter gradients.
  __device__ __forceinline__ void finish(std::int64_t row, const Row& r,
                                         const GradientAverages<float>& average, Sums& sums,
                                         Hide hide) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float x[kSize], g[kSize], h[kSize];
      expand_row(r, k, x, g, h, hide);
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        x[i] = normalise(x[i], r.mean, r.rstd, -average.x0);
        h[i] = input_gradient(h[i], x[i], average.h, average.h_x_hat, r.rstd);
      }
      if (columns_.holds(k)) access_.store(row, columns_.col_of(k), h);
      sums.add(k, x, g);
    }
    if (!columns_.owns_tail()) return;
    const float x_hat = normalise(r.x_tail, r.mean, r.rstd, -average.x0);
    access_.store_tail(
        row, columns_.tail_col(),
        input_gradient(r.g_tail * weight_tail_, x_hat, average.h, average.h_x_hat, r.rstd));
    sums.weight_tail = fma(r.g_tail, x_hat, sums.weight_tail);
    sums.bias_tail += r.g_tail;
  }

  __device__ const LaneColumns<Element, Access::kHasTail, kLanes>& columns() const {
    return columns_;
  }

 private:
  __device__ __forceinline__ void expand_row(const Row& r, int k, float (&x)[kSize],
                                             float (&g)[kSize], float (&h)[kSize],
                                             Hide hide) const {
    expand<Element>(r.x[k], x, hide);
    r.g[k].expand_to(g, hide);
    Weights weights;
#pragma unroll
    for (int i = 0; i < Weights::kCount; ++i) weights.packs[i] = weights_[k * Weights::kCount + i];
    weights.expand_to(h, hide);
#pragma unroll
    for (int i = 0; i < kSize; ++i) h[i] *= g[i];
  }

  Access access_;
  LaneColumns<Element, Access::kHasTail, kLanes> columns_;
  PrivatePacks<kPacks * Weights::kCount, kUsesSharedMemory> weights_;
  float weight_tail_;
  const float* mean_;
  const float* rstd_;
};

}  // namespace simple_layernorm::gpu
