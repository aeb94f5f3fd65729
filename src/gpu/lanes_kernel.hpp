// LayerNorm forward for narrow rows: a group of lanes per row, several rows to a wave, the row in
// registers, no shared memory and no barrier. math/layer_norm.hpp has the formula.

#pragma once

#include "gpu/launch_plan.hpp"
#include "gpu/layernorm_launch.hpp"
#include "gpu/segment.hpp"
#include "gpu/segment_tree.hpp"

namespace simple_layernorm::gpu {
/// Rows r, r + rows_apart, … of a group, kRows of them, are read before the first is used.
template <class Element, class Access, int kLanes, int kPacks, int kRows>
__global__ void __launch_bounds__(kLanesThreads)
    layer_norm_forward_lanes(LayerNormForward a, std::int64_t first_row, float inverse_n) {
  if constexpr (kLanes > kWave) return;  // a shape for larger waves
  constexpr int kGroups = kLanesThreads / kLanes;
  const RowShape<Element> shape(a.cols);
  const float eps = static_cast<float>(a.eps);
  const std::int64_t row0 =
      first_row + std::int64_t{blockIdx.x} * (kGroups * kRows) + threadIdx.x / kLanes;
  // Lanes must meet in the sums: groups beyond the last row work on it too, but write nothing.
  const auto row_of = [&](int u) { return min(row0 + u * kGroups, a.rows - 1); };
  const auto input_of = [&](int u) {
    return static_cast<const Element*>(a.input) + row_of(u) * a.row_stride;
  };

  Segment<Element, Access, kLanes, kPacks> segments[kRows];
  Moments<float> moments[kRows];
  float scales[kRows];
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    segments[u].place(shape, 0, true);
    segments[u].load(input_of(u));
  }
#pragma unroll
  for (int u = 0; u < kRows; ++u) segments[u].arrange(input_of(u), 1.0f);
#pragma unroll 1
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
#pragma unroll
    for (int u = 0; u < kRows; ++u) moments[u] = segments[u].moments(inverse_n, {}, {});
    if (attempt > 0) break;
    bool rescue = false;
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      scales[u] = rescue_scale_of<Element>(moments[u].m2, eps);
      rescue = rescue || scales[u] != 1.0f;
    }
    if (!any_lane(rescue)) break;
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      segments[u].load(input_of(u));
      segments[u].arrange(input_of(u), scales[u]);
    }
  }

  RowStatistics<float> statistics[kRows];
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    const std::int64_t row = row0 + u * kGroups;
    statistics[u] =
        row_statistics(moments[u], static_cast<float>(a.cols), inverse_n, eps, scales[u]);
    if (threadIdx.x % kLanes == 0 && row < a.rows) store_statistics(a, row, statistics[u]);
  }

  const Access access(a, {});
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    float w[kPackSize<Element>], b[kPackSize<Element>];
    segments[0].load_parameters(access, k, w, b);
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const std::int64_t row = row0 + u * kGroups;
      if (row >= a.rows) break;
      segments[u].write_pack(access, k, row * a.cols, statistics[u], w, b, {});
      if (k == 0) segments[u].write_tail(access, row * a.cols, statistics[u]);
    }
  }
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    const std::int64_t row = row0 + u * kGroups;
    segments[u].write_packs(access, row * a.cols, row < a.rows);
  }
}

template <class Element, class Access, int kIndex>
void launch_lanes(const LayerNormForward& a, void* stream) {
  constexpr LanesShape kShape = kLanesShapes[kIndex];
  constexpr std::int64_t kRowsPerBlock = kLanesThreads / kShape.lanes * kShape.rows;
  constexpr std::int64_t kRowsPerLaunch = kMostBlocks * kRowsPerBlock;
  for (std::int64_t first = 0; first < a.rows; first += kRowsPerLaunch) {
    const std::int64_t rows = std::min(a.rows - first, kRowsPerLaunch);
    launch(layer_norm_forward_lanes<Element, Access, kShape.lanes, kShape.packs, kShape.rows>,
           divide_up(rows, kRowsPerBlock), kLanesThreads, 0, stream, a, first,
           1.0f / static_cast<float>(a.cols));
  }
}

template <class Element>
void launch_forward_lanes(const LayerNormForward& a, const ForwardPlan& plan, void* stream) {
  with_index<kLanesShapeCount>(plan.shape, [&](auto index) {
    if constexpr (kLanesShapes[decltype(index)::value].lanes <= kLargestWave) {
      with_access<Element>(a, [&](auto* access) {
        using Access = std::remove_pointer_t<decltype(access)>;
        launch_lanes<Element, Access, decltype(index)::value>(a, stream);
      });
    }
  });
}

}  // namespace simple_layernorm::gpu
