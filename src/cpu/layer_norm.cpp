// LayerNorm on the CPU, a task per block of rows. math/layer_norm.hpp has the formula.

#include <algorithm>
#include <cmath>

#include "math/bits16.hpp"
#include "math/layer_norm.hpp"
#include "simple_layernorm/cpu.hpp"

namespace simple_layernorm::cpu {
namespace {

template <class Element>
struct ComputeType {
  using type = float;
};
template <>
struct ComputeType<double> {
  using type = double;
};
template <class Element>
using Compute = typename ComputeType<Element>::type;

float load(const float* p) { return *p; }
double load(const double* p) { return *p; }
float load(const Float16* p) { return to_float(*p); }
float load(const BFloat16* p) { return to_float(*p); }
void store(float* p, float value) { *p = value; }
void store(double* p, double value) { *p = value; }
void store(Float16* p, float value) { *p = to_float16(value); }
void store(BFloat16* p, float value) { *p = to_bfloat16(value); }

template <class F>
auto with_element_type(Dtype dtype, F f) {
  switch (dtype) {
    case Dtype::float64: return f(double{});
    case Dtype::float16: return f(Float16{});
    case Dtype::bfloat16: return f(BFloat16{});
    case Dtype::float32: break;
  }
  return f(float{});
}

template <class Element>
Compute<Element> parameter(const void* data, Dtype dtype, std::int64_t col, Compute<Element> absent) {
  if (data == nullptr) return absent;
  if (dtype == Dtype::float32) return load(static_cast<const float*>(data) + col);
  return load(static_cast<const Element*>(data) + col);
}

template <class T, class F>
T sum_over(std::int64_t cols, F term) {
  constexpr int kLanes = 32;
  T lanes[kLanes] = {};
  for (std::int64_t col = 0; col < cols; ++col) lanes[col % kLanes] += term(col);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

template <class Element, class T>
Moments<T> moments_of_row(const Element* x, std::int64_t cols, T scale) {
  const T inverse_n = T(1) / static_cast<T>(cols);
  const T shift = sum_over<T>(cols, [&](auto col) { return load(x + col) * scale; }) * inverse_n;
  const T s1 = sum_over<T>(cols, [&](auto col) { return load(x + col) * scale - shift; });
  const T s2 = sum_over<T>(cols, [&](auto col) {
    const T d = load(x + col) * scale - shift;
    return d * d;
  });
  return moments_of(shift, s1, s2, inverse_n);
}

template <class Element>
void forward_row(const LayerNormForward& a, std::int64_t row) {
  using T = Compute<Element>;
  const Element* x = static_cast<const Element*>(a.input) + row * a.row_stride;
  Element* y = static_cast<Element*>(a.output) + row * a.cols;
  const T eps = static_cast<T>(a.eps);
  Moments<T> moments = moments_of_row(x, a.cols, T(1));
  const T scale = rescue_scale(moments.m2, eps);
  if (scale != T(1)) moments = moments_of_row(x, a.cols, scale);
  const RowStatistics<T> s = row_statistics(moments, T(1) / static_cast<T>(a.cols), eps, scale);
  for (std::int64_t col = 0; col < a.cols; ++col) {
    const T x_hat = normalise(load(x + col) * scale, s.shift, s.rstd, s.offset);
    store(y + col, std::fma(x_hat, parameter<Element>(a.weight, a.weight_dtype, col, T(1)),
                            parameter<Element>(a.bias, a.bias_dtype, col, T(0))));
  }
  if (a.mean != nullptr) {
    static_cast<T*>(a.mean)[row] = s.unscaled_mean();
    static_cast<T*>(a.rstd)[row] = s.unscaled_rstd();
  }
}

template <class T>
struct Partials {
  T* weight;  ///< [blocks, cols], or null if not wanted
  T* bias;
};

/// Rows whose parameter gradients one task sums. A function of the sizes only, so that the sums are
/// added in the same order on any number of threads.
std::int64_t rows_per_block(std::int64_t rows) {
  constexpr std::int64_t kMostBlocks = 64;
  constexpr std::int64_t kFewestRows = 16;
  return std::max(kFewestRows, (rows + kMostBlocks - 1) / kMostBlocks);
}

std::int64_t blocks_of(std::int64_t rows) {
  return (rows + rows_per_block(rows) - 1) / rows_per_block(rows);
}

template <class Element, class T = Compute<Element>>
Partials<T> partials_in(void* workspace, const LayerNormBackward& a) {
  T* memory = static_cast<T*>(workspace);
  T* weight = a.grad_weight != nullptr ? memory : nullptr;
  if (weight != nullptr) memory += blocks_of(a.rows) * a.cols;
  return {weight, a.grad_bias != nullptr ? memory : nullptr};
}

template <class Element, class T = Compute<Element>>
void backward_row(const LayerNormBackward& a, std::int64_t row, T* weight_sums, T* bias_sums) {
  const Element* g =
      static_cast<const Element*>(a.grad_output) + row * a.grad_output_row_stride;
  const Element* x = static_cast<const Element*>(a.input) + row * a.row_stride;
  const T mean = static_cast<const T*>(a.mean)[row];
  const T rstd = static_cast<const T*>(a.rstd)[row];
  const auto x0 = [&](auto col) { return normalise_stored(load(x + col), mean, rstd); };
  const auto h = [&](auto col) {
    return load(g + col) * parameter<Element>(a.weight, a.weight_dtype, col, T(1));
  };

  T sum_x0 = T(0), sum_h = T(0), sum_h_x0 = T(0);
  if (a.grad_input != nullptr || weight_sums != nullptr) sum_x0 = sum_over<T>(a.cols, x0);
  if (a.grad_input != nullptr) {
    sum_h = sum_over<T>(a.cols, h);
    sum_h_x0 = sum_over<T>(a.cols, [&](auto col) { return h(col) * x0(col); });
  }
  const GradientAverages<T> average =
      gradient_averages(sum_x0, sum_h, sum_h_x0, T(1) / static_cast<T>(a.cols));

  Element* grad_input = static_cast<Element*>(a.grad_input) + row * a.cols;
  for (std::int64_t col = 0; col < a.cols; ++col) {
    const T x_hat = x0(col) - average.x0;
    if (a.grad_input != nullptr) {
      store(grad_input + col,
            input_gradient(h(col), x_hat, average.h, average.h_x_hat, rstd));
    }
    if (weight_sums != nullptr) weight_sums[col] += load(g + col) * x_hat;
    if (bias_sums != nullptr) bias_sums[col] += load(g + col);
  }
}

template <class Element, class T = Compute<Element>>
void merge_partials(const T* partials, std::int64_t blocks, std::int64_t cols, Dtype dtype,
                    void* result) {
  if (result == nullptr) return;
  for (std::int64_t col = 0; col < cols; ++col) {
    T sum = T(0);
    for (std::int64_t block = 0; block < blocks; ++block) sum += partials[block * cols + col];
    if (dtype == Dtype::float32) {
      store(static_cast<float*>(result) + col, static_cast<float>(sum));
    } else {
      store(static_cast<Element*>(result) + col, sum);
    }
  }
}

}  // namespace

void serial_for(std::int64_t tasks, const std::function<void(std::int64_t)>& task) {
  for (std::int64_t i = 0; i < tasks; ++i) task(i);
}

std::size_t layer_norm_forward_workspace(const LayerNormForward&) { return 0; }

void layer_norm_forward(const LayerNormForward& a, void*, const ParallelFor& parallel_for) {
  constexpr std::int64_t kRowsPerTask = 16;
  if (a.cols == 0) return;
  with_element_type(a.input_dtype, [&](auto element) {
    parallel_for((a.rows + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task) {
      const std::int64_t end = std::min(a.rows, (task + 1) * kRowsPerTask);
      for (std::int64_t row = task * kRowsPerTask; row < end; ++row) {
        forward_row<decltype(element)>(a, row);
      }
    });
  });
}

std::size_t layer_norm_backward_workspace(const LayerNormBackward& a) {
  const int sums = (a.grad_weight != nullptr) + (a.grad_bias != nullptr);
  return static_cast<std::size_t>(sums * blocks_of(a.rows) * a.cols) *
         size_of(statistic_dtype(a.input_dtype));
}

void layer_norm_backward(const LayerNormBackward& a, void* workspace,
                         const ParallelFor& parallel_for) {
  if (a.cols == 0) return;
  with_element_type(a.input_dtype, [&](auto element) {
    using Element = decltype(element);
    using T = Compute<Element>;
    const Partials<T> partials = partials_in<Element>(workspace, a);
    const std::int64_t block_rows = rows_per_block(a.rows);
    parallel_for(blocks_of(a.rows), [&](std::int64_t block) {
      T* weight_sums = partials.weight ? partials.weight + block * a.cols : nullptr;
      T* bias_sums = partials.bias ? partials.bias + block * a.cols : nullptr;
      if (weight_sums != nullptr) std::fill_n(weight_sums, a.cols, T(0));
      if (bias_sums != nullptr) std::fill_n(bias_sums, a.cols, T(0));
      const std::int64_t end = std::min(a.rows, (block + 1) * block_rows);
      for (std::int64_t row = block * block_rows; row < end; ++row) {
        backward_row<Element>(a, row, weight_sums, bias_sums);
      }
    });
    merge_partials<Element>(partials.weight, blocks_of(a.rows), a.cols, a.weight_dtype,
                            a.grad_weight);
    merge_partials<Element>(partials.bias, blocks_of(a.rows), a.cols, a.bias_dtype, a.grad_bias);
  });
}

const char* level() { return "baseline"; }

}  // namespace simple_layernorm::cpu
