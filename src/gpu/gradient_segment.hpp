// The backward pass on a segment (see segment.hpp): what a lane reads of a row, the sums that it
// adds to, the gradients that follow from them.
#pragma once

#include "gpu/gradient_access.hpp"
#include "gpu/private_packs.hpp"
#include "gpu/segment.hpp"

namespace simple_layernorm::gpu {

/// Sums of the parameter gradients over the rows that a thread has seen, for its columns: kPacks
/// packs of kSize values.
template <int kPacks, int kSize, int kSharedThreads>
class Accumulators {
  static constexpr int kParts = kSize / 4;  ///< packs of floats

 public:
  static constexpr bool kInSharedMemory = kSharedThreads > 0;
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

  /// Those of pack k.
  __device__ __forceinline__ void get(int k, float (&weight)[kSize], float (&bias)[kSize]) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      weight[i] = float_of(weight_of(k, i / 4).words[i % 4]);
      bias[i] = float_of(bias_of(k, i / 4).words[i % 4]);
    }
  }
  __device__ __forceinline__ void put(int k, const float (&weight)[kSize],
                                      const float (&bias)[kSize]) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const float* const w = weight + part * 4;
      const float* const b = bias + part * 4;
      weight_of(k, part) = compress<float>({w[0], w[1], w[2], w[3]});
      bias_of(k, part) = compress<float>({b[0], b[1], b[2], b[3]});
    }
  }

  /// Four values from value 4 * part of pack k on.
  __device__ Pack& weight_of(int k, int part) { return packs_[2 * k * kParts + part]; }
  __device__ Pack& bias_of(int k, int part) { return packs_[(2 * k + 1) * kParts + part]; }
  /// The same of any thread of the block, in shared memory.
  __device__ const Pack& weight_of(int k, int part, int thread) const {
    return packs_.of_thread(thread, 2 * k * kParts + part);
  }
  __device__ const Pack& bias_of(int k, int part, int thread) const {
    return packs_.of_thread(thread, (2 * k + 1) * kParts + part);
  }

  float weight_tail = 0.0f, bias_tail = 0.0f;

 private:
  PrivatePacks<kCount, kSharedThreads> packs_;
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

/// kSharedThreads: see PrivatePacks.
template <class Element, class Access, int kLanes, int kPacks, int kSharedThreads>
class GradientSegment {
  using Weights = typename Access::Weights;
  using Grad = typename Access::Grad;
  using Grads = typename Access::Grads;

 public:
  static constexpr int kSize = kPackSize<Element>;
  using Sums = Accumulators<kPacks, kSize, kSharedThreads>;

  static constexpr int kWeightPacks = kPacks * Weights::kCount;
  static constexpr int kRowPacks = kPacks * (1 + Grads::kCount);

  /// Packs of dynamic shared memory that a thread takes: the accumulators come first, then the
  /// weights, then (kSharedRowPacks each) the rows that are put aside.
  static constexpr int kSharedPacks = kSharedThreads > 0 ? Sums::kCount + kWeightPacks : 0;
  static constexpr int kSharedRowPacks = kSharedThreads > 0 ? kRowPacks : 0;

  /// What is read of a row besides its packs.
  struct RowValues {
    std::uint32_t x_edge, g_edge;  ///< see UnalignedPacks
    std::uint32_t x_tail, g_tail;  ///< raw; see tails_of
    float mean, rstd;
  };

  /// What is read of a row: its packs are those of the input, then those of grad_output.
  struct Row : RowValues {
    Pack packs[kRowPacks];
  };

  /// A row that is put aside.
  struct KeptRow : RowValues {
    PrivatePacks<kRowPacks, kSharedThreads> packs;

    /// `index` counts the rows that the block puts aside.
    __device__ void place(Pack* memory, int index) {
      packs.place(memory + (kSharedPacks + index * kRowPacks) * kSharedThreads);
    }
    __device__ __forceinline__ void keep(const Row& row) {
      static_cast<RowValues&>(*this) = row;
#pragma unroll
      for (int i = 0; i < kRowPacks; ++i) packs[i] = row.packs[i];
    }
  };

  /// The segment that starts at pack `first` of every row.
  __device__ __forceinline__ GradientSegment(const LayerNormBackward& a, int first, Pack* memory)
      : access_(a),
        weights_(memory + Sums::kCount * kSharedThreads),
        mean_(static_cast<const float*>(a.mean)),
        rstd_(static_cast<const float*>(a.rstd)) {
    columns_.place(RowShape<Element>(a.cols), first, first == 0);
  }

  /// Reads its weights, once for all rows; after the loads of the first row are issued.
  __device__ __forceinline__ void load_weights() {
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

  /// Issues the loads of a row.
  __device__ __forceinline__ void load(std::int64_t row, Row& r) const {
    const Element* const x = access_.input(row);
    const Grad* const g = access_.grad_output(row);
    if constexpr (Access::kIsAligned) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const std::int64_t col = columns_.col_of(k);
        r.packs[k] = columns_.holds(k) ? load_aligned(x + col) : Pack{};
        const Grads grads = columns_.holds(k) ? Grads::load(g + col) : Grads{};
#pragma unroll
        for (int i = 0; i < Grads::kCount; ++i) {
          r.packs[kPacks + k * Grads::kCount + i] = grads.packs[i];
        }
      }
    } else {
      Pack* const g_packs = r.packs + kPacks;
      unaligned(x).load(r.packs);
      unaligned(g).load(g_packs);
      load_elements(x, g, r);
    }
    r.mean = mean_[row];
    r.rstd = rstd_[row];
  }

  /// To be called before a loaded row is used, by all lanes of a wave.
  __device__ __forceinline__ void arrange(std::int64_t row, Row& r) const {
    if constexpr (!Access::kIsAligned) {
      const auto x = unaligned(access_.input(row));
      const auto g = unaligned(access_.grad_output(row));
      Pack* const g_packs = r.packs + kPacks;
      x.arrange(r.packs, r.x_edge);
      g.arrange(g_packs, kGathers ? r.x_edge : r.g_edge, kGathers ? kRole : 0);
    }
  }

  /// The lane's part of the sums of x0, h and h * x0: see gradient_averages.
  __device__ __forceinline__ void sums_of(const Row& r, float (&sums)[3], Hide hide) const {
    const Tails tails = tails_of(r);
    const float x0_tail = normalise_stored(tails.x, r.mean, r.rstd);
    const float h_tail = tails.g * weight_tail_;
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

  /// Writes grad_input of a row, or puts it in the input's place for write_packs, and adds the
  /// row's share of the parameter gradients.
  template <class AnyRow>
  __device__ __forceinline__ void finish(std::int64_t row, AnyRow& r,
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
      if constexpr (!Access::kIsAligned) {
        r.packs[k] = compress<Element>(h);
      } else if (columns_.holds(k) && access_.wants_grad_input()) {
        store_aligned(access_.grad_input(row) + columns_.col_of(k), compress<Element>(h));
      }
      sums.add(k, x, g);
    }
    const auto [x_tail, g] = tails_of(r);
    if (!columns_.owns_tail()) return;
    const float x_hat = normalise(x_tail, r.mean, r.rstd, -average.x0);
    if (access_.wants_grad_input()) {
      gpu::store(access_.grad_input(row) + columns_.tail_col(),
                 input_gradient(g * weight_tail_, x_hat, average.h, average.h_x_hat, r.rstd));
    }
    sums.weight_tail = fma(g, x_hat, sums.weight_tail);
    sums.bias_tail += g;
  }

  /// The same for several aligned rows, whose sums are fetched and put back once. Rows that do not
  /// exist have no share, and are not written.
  template <int kRows, class AnyRow>
  __device__ __forceinline__ void finish_together(const std::int64_t (&rows)[kRows],
                                                  const bool (&exist)[kRows], AnyRow (&r)[kRows],
                                                  const GradientAverages<float> (&averages)[kRows],
                                                  Sums& sums, Hide hide) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float weight[kSize], bias[kSize];
      sums.get(k, weight, bias);
      Pack gradients[kRows];
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        const GradientAverages<float>& average = averages[u];
        float x[kSize], g[kSize], h[kSize];
        expand_row(r[u], k, x, g, h, hide);
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          x[i] = normalise(x[i], r[u].mean, r[u].rstd, -average.x0);
          h[i] = input_gradient(h[i], x[i], average.h, average.h_x_hat, r[u].rstd);
          const float share = exist[u] ? g[i] : 0.0f;
          weight[i] = fma(share, x[i], weight[i]);
          bias[i] += share;
        }
        gradients[u] = compress<Element>(h);
      }
      sums.put(k, weight, bias);
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        if (columns_.holds(k) && access_.wants_grad_input() && exist[u]) {
          store_aligned(access_.grad_input(rows[u]) + columns_.col_of(k), gradients[u]);
        }
      }
    }
  }

  /// Writes what `finish` kept, if the row exists. All lanes of a wave must call it.
  template <class AnyRow>
  __device__ __forceinline__ void write_packs(std::int64_t row, const AnyRow& r,
                                              bool exists) const {
    if constexpr (!Access::kIsAligned) {
      if (access_.wants_grad_input()) unaligned(access_.grad_input(row)).store(r.packs, exists);
    }
  }

  __device__ const LaneColumns<Element, Access::kHasTail, kLanes>& columns() const {
    return columns_;
  }

 private:
  // A row on its way to a wave of 32 has the edges of its two arrays and their columns after the
  // last pack, up to kRole of each, in one register instead of four.
  static constexpr bool kGathers =
      !kMovesUnalignedPacks && sizeof(Element) == 2 && kLanes == 32 && !Access::kIsWide;
  static constexpr int kRole = 8;

  /// What a lane has of the columns after the last pack.
  struct Tails {
    float x, g;
  };
  __device__ __forceinline__ Tails tails_of(const RowValues& r) const {
    if constexpr (!Access::kHasTail) return {0.0f, 0.0f};
    std::uint32_t x = r.x_tail, g = r.g_tail;
    if constexpr (kGathers) {
      const int lane = threadIdx.x % kLanes;
      x = shuffle_from<kLanes>(r.x_edge, 2 * kRole + lane);
      g = shuffle_from<kLanes>(r.x_edge, 3 * kRole + lane);
    }
    return {value_of<Element>(x), value_of<Grad>(g)};
  }

  __device__ __forceinline__ void load_elements(const Element* x, const Grad* g,
                                                RowValues& r) const {
    if constexpr (kGathers) {
      const int lane = threadIdx.x % kLanes, role = lane / kRole, i = lane % kRole;
      const Element* const row = role % 2 == 0 ? x : g;
      const bool is_tail = role >= 2;
      const bool exists = is_tail ? i < columns_.tail() : unaligned(row).has_edge(i);
      const Element* const p =
          is_tail ? row + columns_.first_tail_col() + i : unaligned(row).edge(i);
      r.x_edge = exists ? raw_bits(p) : 0;
    } else {
      const bool owns_tail = columns_.owns_tail();
      r.x_edge = unaligned(x).load_edge();
      r.g_edge = unaligned(g).load_edge();
      r.x_tail = owns_tail ? raw_bits(x + columns_.tail_col()) : 0;
      r.g_tail = owns_tail ? raw_bits(g + columns_.tail_col()) : 0;
    }
  }

  /// The segment's packs in a row, wherever it starts.
  template <class T>
  __device__ __forceinline__ auto unaligned(T* row) const {
    constexpr int kCount = kSize / kPackSize<T>;
    // Of eight packs, registers run out: 65536 columns, offset 1, 0.53, by whole packs 0.64 (see
    // kLoadsWords).
    return UnalignedPacks<T, kLanes, kPacks, kCount, (kPacks * kCount < 8)>(
        row, columns_.first_pack(), columns_.template packs<kPacks>());
  }

  template <class AnyRow>
  __device__ __forceinline__ void expand_row(const AnyRow& r, int k, float (&x)[kSize],
                                             float (&g)[kSize], float (&h)[kSize],
                                             Hide hide) const {
    expand<Element>(r.packs[k], x, hide);
    Grads grads;
#pragma unroll
    for (int i = 0; i < Grads::kCount; ++i)
      grads.packs[i] = r.packs[kPacks + k * Grads::kCount + i];
    grads.expand_to(g, hide);
    Weights weights;
#pragma unroll
    for (int i = 0; i < Weights::kCount; ++i)
      weights.packs[i] = weights_.get(k * Weights::kCount + i, hide);
    weights.expand_to(h, hide);
#pragma unroll
    for (int i = 0; i < kSize; ++i) h[i] *= g[i];
  }

  Access access_;
  LaneColumns<Element, Access::kHasTail, kLanes> columns_;
  PrivatePacks<kWeightPacks, kSharedThreads> weights_;
  float weight_tail_;
  const float* mean_;
  const float* rstd_;
};

}  // namespace simple_layernorm::gpu
