// LayerNorm forward for the widest rows: a group of blocks per row, whose blocks hand over their
// moments. A row is read once, the next one while this one is worked on; it is finished when the
// moments of all its pieces have come, a row later. math/layer_norm.hpp has the formula,
// segment_tree.hpp the order of the sums.
#pragma once

#include "gpu/handover.hpp"
#include "gpu/launch_plan.hpp"
#include "gpu/layernorm_launch.hpp"
#include "gpu/segment.hpp"

namespace simple_layernorm::gpu {

/// Weights and biases of a lane's packs, kept from row to row if that takes one pack for each.
template <class Access, bool kInSharedMemory, int kThreads>
class KeptParameters {
  using Values = typename Access::Parameters;
  static constexpr int kSize = Access::kSize;
  static constexpr bool kKeeps = Values::kCount == 1;

 public:
  static constexpr int kCount = kKeeps ? 2 * kWidePacks : 0;

  template <class Row>
  __device__ __forceinline__ KeptParameters(const Access& access, const Row& row, Pack* memory)
      : packs_(memory) {
    if constexpr (kKeeps) {
#pragma unroll
      for (int k = 0; k < kWidePacks; ++k) {
        const auto [weights, biases] = row.parameters(access, k);
        packs_[2 * k] = weights.packs[0];
        packs_[2 * k + 1] = biases.packs[0];
      }
    }
  }

  template <class Row>
  __device__ __forceinline__ void get(const Access& access, const Row& row, int k,
                                      float (&w)[kSize], float (&b)[kSize], Hide hide) const {
    if constexpr (kKeeps) {
      Values{packs_[2 * k]}.expand_to(w, hide);
      Values{packs_[2 * k + 1]}.expand_to(b, hide);
    } else {
      row.template load_parameters<true>(access, k, w, b);
    }
  }

 private:
  PrivatePacks<(kCount > 0 ? kCount : 1), kInSharedMemory, kThreads> packs_;
};

template <class Element, class Access, int kIndex>
__global__ void __launch_bounds__(kSplitShapes[kIndex].waves* kWave, 1)
    layer_norm_forward_split(LayerNormForward a, SplitWorkspace workspace) {
  constexpr int kWaves = kSplitShapes[kIndex].waves;
  constexpr bool kShared = kSplitShapes[kIndex].uses_shared_memory;
  constexpr int kThreads = kWaves * kWave;
  using Row = Segment<Element, Access, kWave, kWidePacks>;
  using KeptRow = Segment<Element, Access, kWave, kWidePacks, kShared ? kThreads : 0>;
  __shared__ CountedMoments slots[2][kWaves];
  __shared__ CountedMoments rescued[kWaves];
  __shared__ SplitWorkspace::Message received[2];
  SIMPLE_LAYERNORM_DYNAMIC_SHARED(Pack, memory);

  const int wave = threadIdx.x / kWave;
  const int lane = threadIdx.x % kWave;
  const int piece = blockIdx.x % workspace.pieces;
  const int segment = piece * kWaves + wave;
  const float eps = static_cast<float>(a.eps);
  const float n = static_cast<float>(a.cols);
  const float inverse_n = 1.0f / n;
  const RowShape<Element> shape(a.cols);
  const Element* const input = static_cast<const Element*>(a.input);
  const auto input_of = [&](std::int64_t row) { return input + row * a.row_stride; };
  Row current, next;
  KeptRow previous(memory);
  current.place(shape, segment * Row::kAllPacks, segment == 0);
  next.place(shape, segment * Row::kAllPacks, segment == 0);
  previous.place(shape, segment * Row::kAllPacks, segment == 0);

  const std::int64_t group = blockIdx.x / workspace.pieces;
  std::int64_t previous_row = -1, row = group, next_row = row + workspace.groups;
  std::int64_t second_row = next_row + workspace.groups;
  next.load(input_of(row));
  const Access access(a, {});
  const KeptParameters<Access, kShared, kThreads> parameters(access, next,
                                                             memory + kWidePacks * kThreads);

  int turn = 0;
  const auto send = [&](std::int64_t row, int attempt, const CountedMoments* of_waves)
                        SIMPLE_LAYERNORM_INLINED {
                          const CountedMoments whole = merge_lanes(of_waves[lane % kWaves], kWaves);
                          if (lane == 0) workspace.send(row, attempt, piece, whole);
                        };
  const auto read = [&](int attempt, const SplitWorkspace::Words& words) SIMPLE_LAYERNORM_INLINED {
    const SplitWorkspace::Message message = workspace.read(previous_row, attempt, words);
    if (lane == 0) received[turn] = message;
  };
#pragma unroll 1
  for (;;) {
    const bool has_row = row < a.rows;
    const bool has_previous = previous_row >= 0;
    const bool receives = has_previous && wave == 0;
    SplitWorkspace::Words words{};
    if (receives) words = workspace.wait(previous_row, 0);
    current = next;
    if (next_row < a.rows) next.load(input_of(next_row));
    if (receives) read(0, words);
    if (has_row) {
      current.arrange(input_of(row), 1.0f);
      const CountedMoments own = current.counted_moments(Hide(row, 63));
      if (lane == 0) slots[turn][wave] = own;
    }
    __syncthreads();
    if (has_row && wave == 1) send(row, 0, slots[turn]);
    if (has_row && piece == 0 && threadIdx.x == kThreads - 1) workspace.announce(row);
    if (has_previous) {
      second_row = received[turn].third_row;
      if (second_row < a.rows) next.prefetch(input_of(second_row));
      Moments<float> moments = received[turn].moments;
      const float scale = rescue_scale_of<Element>(moments.m2, eps);
      if (scale != 1.0f) {
        previous.multiply(scale);
        const CountedMoments own = previous.counted_moments(Hide(previous_row, 60));
        if (lane == 0) rescued[wave] = own;
        __syncthreads();
        if (wave == 0) {
          send(previous_row, 1, rescued);
          read(1, workspace.wait(previous_row, 1));
        }
        __syncthreads();
        moments = received[turn].moments;
      }
      const RowStatistics<float> s = row_statistics(moments, n, inverse_n, eps, scale);
      if (segment == 0 && lane == 0) store_statistics(a, previous_row, s);
      const Hide hide(previous_row, 61);
      const std::int64_t start = previous_row * a.cols;
      previous.write_tail(access, start, s);
#pragma unroll
      for (int k = 0; k < kWidePacks; ++k) {
        float w[Row::kSize], b[Row::kSize];
        parameters.get(access, previous, k, w, b, hide);
        previous.write_pack(access, k, start, s, w, b, hide);
      }
      previous.write_packs(access, start, true);
    }
    if (!has_row) return;
    turn ^= 1;
    previous.keep(current);
    previous_row = row;
    row = next_row;
    next_row = second_row;
  }
}

/// Starts no more blocks than can run at the same time, in whole groups: a block waits for others
/// of its group, so these must get to run whatever it does.
template <class Element, class Access, int kIndex>
void launch_split(const LayerNormForward& a, int pieces, const DeviceProperties& device,
                  void* workspace, void* stream) {
  constexpr SplitShape kShape = kSplitShapes[kIndex];
  constexpr auto kKernel = layer_norm_forward_split<Element, Access, kIndex>;
  const int threads = kShape.waves * device.wave;
  const std::size_t shared_packs =
      kShape.uses_shared_memory ? kWidePacks + KeptParameters<Access, true, 0>::kCount : 0;
  const std::size_t shared_bytes = shared_packs * sizeof(Pack) * threads;
  allow_shared_bytes<kKernel>(shared_bytes);
  const std::int64_t resident = std::int64_t{device.multiprocessors} *
                                blocks_per_multiprocessor<kKernel>(threads, shared_bytes);
  const std::int64_t groups = std::min(a.rows, resident / pieces);
  fill_bytes(workspace, 0xff, SplitWorkspace::bytes(a.rows, pieces), stream);
  launch(kKernel, groups * pieces, threads, shared_bytes, stream, a,
         SplitWorkspace(workspace, a.rows, pieces, groups));
}

}  // namespace simple_layernorm::gpu
