// LayerNorm forward for the widest rows: a group of blocks per row, whose blocks hand over their
// moments. A row is read once, the next one while this one is worked on; it is finished when the
// moments of all its pieces have come, a row later. math/layer_norm.hpp has the formula,
// segment_tree.hpp the order of the sums.
#pragma once

#include <algorithm>

#include "gpu/handover.hpp"
#include "gpu/launch.hpp"
#include "gpu/launch_plan.hpp"
#include "gpu/layernorm_launch.hpp"
#include "gpu/segment.hpp"

namespace simple_layernorm::gpu {

/// Weights and biases of a lane's packs, kept from row to row as far as there is shared memory for
/// them: for all if each takes one pack, for the weights and a quarter of the biases if it takes
/// two. H200, torch 2.11, 2026-11-30, forward over copy, bfloat16 rows with float32 parameters of
/// 65536 and 131072 columns: 0.794, 0.781, only weights kept 0.768, 0.758, none 0.656, 0.649.
template <class Access, bool kInSharedMemory, int kThreads>
class KeptParameters {
  using Values = typename Access::Parameters;
  static constexpr int kSize = Access::kSize;
  static constexpr int kPacks = Values::kCount;  ///< of the weights for one pack, or the biases
  static constexpr int kRoomForPacks = kLargeSharedBytes / (sizeof(Pack) * kThreads);
  /// Packs of a lane whose weights are kept, and whose biases.
  static constexpr int kWeights = kInSharedMemory ? kWidePacks : 0;
  static constexpr int kBiases =
      kInSharedMemory
          ? std::clamp(((kRoomForPacks - kWidePacks) / kPacks - kWidePacks), 0, kWidePacks)
          : 0;

 public:
  static constexpr int kCount = (kWeights + kBiases) * kPacks;

  explicit __device__ KeptParameters(Pack* memory) : packs_(memory) {}

  template <class Row>
  __device__ __forceinline__ void load(const Access& access, const Row& row) {
#pragma unroll
    for (int k = 0; k < kWidePacks; ++k) {
      const auto [weights, biases] = row.parameters(access, k);
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (k < kWeights) packs_[k * kPacks + i] = weights.packs[i];
        if (k < kBiases) packs_[(kWeights + k) * kPacks + i] = biases.packs[i];
      }
    }
  }

  template <class Row>
  __device__ __forceinline__ void get(const Access& access, const Row& row, int k,
                                      float (&w)[kSize], float (&b)[kSize], Hide hide) const {
    if constexpr (kCount == 0) return row.template load_parameters<true>(access, k, w, b);
    auto [weights, biases] = row.parameters(access, k);  // of those kept, nothing is loaded
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      weights.packs[i] = packs_[k * kPacks + i];
      if (k < kBiases) biases.packs[i] = packs_[(kWeights + k) * kPacks + i];
    }
    weights.expand_to(w, hide);
    biases.expand_to(b, hide);
  }

 private:
  PrivatePacks<std::max(kCount, 1), kInSharedMemory ? kThreads : 0> packs_;
};

/// What a wave holds of its block's rows: a segment of the row that is being loaded, of the current
/// row, and of the row before, which waits for the moments of its other pieces.
template <class Element, class Access, int kIndex>
class WaveRows {
  static constexpr bool kShared = kSplitShapes[kIndex].uses_shared_memory;
  static constexpr int kThreads = kSplitShapes[kIndex].waves * kWave;
  using Row = Segment<Element, Access, kWave, kWidePacks>;
  using KeptRow = Segment<Element, Access, kWave, kWidePacks, kShared ? kThreads : 0>;
  using Parameters = KeptParameters<Access, kShared, kThreads>;

 public:
  /// Dynamic shared memory of a block.
  static constexpr std::size_t kSharedBytes =
      kShared ? (kWidePacks + Parameters::kCount) * kThreads * sizeof(Pack) : 0;

  /// `segment` counts from the row's first column, over all blocks.
  __device__ __forceinline__ WaveRows(const LayerNormForward& a, int segment,
                                      std::int64_t first_row, Pack* memory)
      : input_(static_cast<const Element*>(a.input)),
        row_stride_(a.row_stride),
        cols_(a.cols),
        access_(a, {}),
        previous_(memory),
        parameters_(memory + kWidePacks * kThreads) {
    const RowShape<Element> shape(a.cols);
    const int first_pack = segment * Row::kAllPacks;
    next_.place(shape, first_pack, segment == 0);
    current_.place(shape, first_pack, segment == 0);
    previous_.place(shape, first_pack, segment == 0);
    load(first_row);
    parameters_.load(access_, next_);
  }

  /// Issues the loads of a row.
  __device__ __forceinline__ void load(std::int64_t row) { next_.load(input_of(row)); }
  /// Asks for a row to be brought to the L2 cache.
  __device__ __forceinline__ void prefetch(std::int64_t row) const {
    next_.prefetch(input_of(row));
  }
  /// Waits for the loaded row and makes it the current one.
  __device__ __forceinline__ void take() { current_ = next_; }
  __device__ __forceinline__ CountedMoments moments(std::int64_t row) {
    current_.arrange(input_of(row), 1.0f);
    return current_.counted_moments(Hide(row, 63));
  }
  /// Puts the current row aside.
  __device__ __forceinline__ void keep() { previous_.keep(current_); }
  /// Those of the row that was put aside, once it is multiplied with `scale`.
  __device__ __forceinline__ CountedMoments scaled_moments(std::int64_t row, float scale) {
    previous_.multiply(scale);
    return previous_.counted_moments(Hide(row, 60));
  }
  /// Writes its outputs.
  __device__ __forceinline__ void write(std::int64_t row, const RowStatistics<float>& s) {
    const Hide hide(row, 61);
    previous_.write_tail(access_, row * cols_, s);
#pragma unroll
    for (int k = 0; k < kWidePacks; ++k) {
      float w[Row::kSize], b[Row::kSize];
      parameters_.get(access_, previous_, k, w, b, hide);
      previous_.write_pack(access_, k, row * cols_, s, w, b, hide);
    }
    previous_.write_packs(access_, row * cols_, true);
  }

 private:
  __device__ const Element* input_of(std::int64_t row) const { return input_ + row * row_stride_; }

  const Element* input_;
  std::int64_t row_stride_;
  std::int64_t cols_;
  Access access_;
  Row next_, current_;
  KeptRow previous_;
  Parameters parameters_;
};

template <class Element, class Access, int kIndex>
__global__ void __launch_bounds__(kSplitShapes[kIndex].waves* kWave, 1)
    layer_norm_forward_split(LayerNormForward a, SplitWorkspace workspace) {
  if constexpr (kSplitShapes[kIndex].needs > kRoom) return;
  await_earlier_work();
  constexpr int kWaves = kSplitShapes[kIndex].waves;
  __shared__ CountedMoments slots[2][kWaves];
  __shared__ CountedMoments scaled[kWaves];
  __shared__ SplitWorkspace::Message received[2];
  SIMPLE_LAYERNORM_DYNAMIC_SHARED(Pack, memory);
  const int wave = threadIdx.x / kWave;
  const int lane = threadIdx.x % kWave;
  const int piece = blockIdx.x % workspace.moments.pieces;
  const int segment = piece * kWaves + wave;
  const float n = static_cast<float>(a.cols), inverse_n = 1.0f / n;
  const float eps = static_cast<float>(a.eps);

  std::int64_t previous_row = -1, row = blockIdx.x / workspace.moments.pieces;
  std::int64_t next_row = row + workspace.groups, second_row = next_row + workspace.groups;
  WaveRows<Element, Access, kIndex> rows(a, segment, row, memory);
  int turn = 0;
  const auto send = [&](std::int64_t row, int attempt, const CountedMoments* of_waves)
                        SIMPLE_LAYERNORM_INLINED {
                          const CountedMoments whole = merge_lanes(of_waves[lane % kWaves], kWaves);
                          if (lane == 0) workspace.moments.send(row, attempt, piece, whole);
                        };
  const auto read = [&](int attempt, const SplitWorkspace::Words& words) SIMPLE_LAYERNORM_INLINED {
    const SplitWorkspace::Message message = workspace.read(previous_row, attempt, words);
    if (lane == 0) received[turn] = message;
  };
  const auto statistics = [&]() SIMPLE_LAYERNORM_INLINED {
    Moments<float> moments = received[turn].moments;
    const float scale = rescue_scale_of<Element>(moments.m2, eps);
    if (scale != 1.0f) {
      const CountedMoments own = rows.scaled_moments(previous_row, scale);
      if (lane == 0) scaled[wave] = own;
      __syncthreads();
      if (wave == 0) {
        send(previous_row, 1, scaled);
        read(1, workspace.wait(previous_row, 1));
      }
      __syncthreads();
      moments = received[turn].moments;
    }
    return row_statistics(moments, n, inverse_n, eps, scale);
  };

  // The order of loads and waits is that of the fastest kernel. NVIDIA counts a thread's
  // outstanding loads by few counters: whatever is waited for after the next row's loads may wait
  // for these too.
#pragma unroll 1
  for (;;) {
    const bool has_row = row < a.rows;
    const bool has_previous = previous_row >= 0;
    const bool receives = has_previous && wave == 0;
    SplitWorkspace::Words words{};
    if (receives) words = workspace.wait(previous_row, 0);
    rows.take();
    if (next_row < a.rows) rows.load(next_row);
    if (receives) read(0, words);
    if (has_row) {
      const CountedMoments own = rows.moments(row);
      if (lane == 0) slots[turn][wave] = own;
    }
    __syncthreads();
    if (has_row && wave == 1) send(row, 0, slots[turn]);
    if (has_row && piece == 0 && threadIdx.x == blockDim.x - 1) workspace.announce(row);
    if (has_previous) {
      second_row = received[turn].third_row;
      if (second_row < a.rows) rows.prefetch(second_row);
      const RowStatistics<float> s = statistics();
      if (segment == 0 && lane == 0) store_statistics(a, previous_row, s);
      rows.write(previous_row, s);
    }
    if (!has_row) return;
    turn ^= 1;
    rows.keep();
    previous_row = row;
    row = next_row;
    next_row = second_row;
  }
}

/// Starts no more blocks than can run at the same time, in whole groups: a block waits for others
/// of its group, so these must get to run whatever it does. As any other launch, kernels on several
/// streams might keep each other's blocks out: NVIDIA's GPUs start all of a kernel's or none, AMD's
/// one such kernel after the other (launch_in_turn). H200, torch 2.11, 2026-11-30: that costs many
/// rows nothing, 1 x 65536 and 1 x 1048576 float32 1.3 us of 7.9 and 12.8.
template <class Element, class Access, int kIndex>
void launch_split(const LayerNormForward& a, int pieces, const DeviceProperties& device,
                  void* workspace, void* stream) {
  constexpr auto kKernel = layer_norm_forward_split<Element, Access, kIndex>;
  constexpr std::size_t shared_bytes = WaveRows<Element, Access, kIndex>::kSharedBytes;
  const int threads = kSplitShapes[kIndex].waves * device.wave;
  allow_shared_bytes<kKernel>(shared_bytes);
  const std::int64_t resident = std::int64_t{device.multiprocessors} *
                                blocks_per_multiprocessor<kKernel>(threads, shared_bytes);
  const std::int64_t groups = std::min(a.rows, resident / pieces);
  launch_fill(workspace, SplitWorkspace::bytes(a.rows, pieces), stream);
  launch_in_turn(stream, [&] {
    launch(kKernel, {groups * pieces, threads, shared_bytes, stream, /*together=*/true}, a,
           SplitWorkspace(workspace, a.rows, pieces, groups));
  });
}

template <class Element>
void launch_forward_split(const LayerNormForward& a, const ForwardPlan& plan,
                          const DeviceProperties& device, void* workspace, void* stream) {
  with_index<kSplitShapeCount>(plan.shape, [&](auto index) {
    constexpr int kIndex = decltype(index)::value;
    if constexpr (kSplitShapes[kIndex].needs <= kMostRoom) {
      with_access<Element>(a, [&](auto* access) {
        using Access = std::remove_pointer_t<decltype(access)>;
        launch_split<Element, Access, kIndex>(a, plan.pieces, device, workspace, stream);
      });
    }
  });
}

}  // namespace simple_layernorm::gpu
