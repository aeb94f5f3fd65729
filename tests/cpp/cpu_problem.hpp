// A LayerNorm problem in plain memory for the tests of the CPU backend: random rows of any dtype,
// row stride and offset from alignment, and what long double makes of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "math/bits16.hpp"
#include "simple_layernorm/cpu.hpp"

namespace simple_layernorm::cpu_test {

inline double epsilon_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64: return 0x1p-52;
    case Dtype::float32: return 0x1p-23;
    case Dtype::float16: return 0x1p-10;
    case Dtype::bfloat16: return 0x1p-7;
  }
  return 0;
}

/// Distance between two numbers of the dtype near `value`; that of subnormals at least.
inline double ulp_of(Dtype dtype, double value) {
  const double smallest = dtype == Dtype::float16 ? 0x1p-14 : 0x1p-126;
  const double magnitude = std::max(std::fabs(value), smallest);
  return std::ldexp(epsilon_of(dtype), std::ilogb(magnitude));
}

/// [rows, cols] elements of a dtype, each row contiguous. Bytes that belong to no element are
/// filled with a pattern that intact() looks for.
class Matrix {
 public:
  Matrix(Dtype dtype, std::int64_t rows, std::int64_t cols, std::int64_t row_stride = -1,
         std::int64_t offset = 0)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        row_stride_(row_stride < 0 ? cols : row_stride),
        offset_(offset),
        bytes_((offset + (rows == 0 ? 0 : (rows - 1) * row_stride_ + cols) + kGuard) * size(),
               kFill) {}

  Dtype dtype() const { return dtype_; }
  std::int64_t row_stride() const { return row_stride_; }
  void* data() { return bytes_.data() + offset_ * size(); }
  const void* row(std::int64_t r) const { return at(r, 0); }
  std::size_t row_bytes() const { return cols_ * size(); }

  double get(std::int64_t r, std::int64_t c) const {
    const void* p = at(r, c);
    switch (dtype_) {
      case Dtype::float64: return read<double>(p);
      case Dtype::float32: return read<float>(p);
      case Dtype::float16: return to_float(read<Float16>(p));
      case Dtype::bfloat16: return to_float(read<BFloat16>(p));
    }
    return 0;
  }
  void set(std::int64_t r, std::int64_t c, double value) {
    void* p = const_cast<void*>(at(r, c));
    switch (dtype_) {
      case Dtype::float64: return write(p, value);
      case Dtype::float32: return write(p, static_cast<float>(value));
      case Dtype::float16: return write(p, to_float16(static_cast<float>(value)));
      case Dtype::bfloat16: return write(p, to_bfloat16(static_cast<float>(value)));
    }
  }
  Matrix& randomise(unsigned seed, double mean = 0, double spread = 1) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal(mean, spread);
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = 0; c < cols_; ++c) set(r, c, normal(engine));
    }
    return *this;
  }
  bool intact() const {
    const std::int64_t end = static_cast<std::int64_t>(bytes_.size());
    for (std::int64_t i = 0; i < offset_ * size(); ++i) {
      if (bytes_[i] != kFill) return false;
    }
    for (std::int64_t i = end - kGuard * size(); i < end; ++i) {
      if (bytes_[i] != kFill) return false;
    }
    return true;
  }

 private:
  static constexpr std::int64_t kGuard = 64;
  static constexpr char kFill = 0x5a;

  std::int64_t size() const { return static_cast<std::int64_t>(size_of(dtype_)); }
  const void* at(std::int64_t r, std::int64_t c) const {
    return bytes_.data() + (offset_ + r * row_stride_ + c) * size();
  }
  template <class T>
  static T read(const void* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  template <class T>
  static void write(void* p, T value) {
    std::memcpy(p, &value, sizeof value);
  }

  Dtype dtype_;
  std::int64_t rows_, cols_, row_stride_, offset_;
  std::vector<char> bytes_;
};

/// A ParallelFor on `threads` threads, which take turns at the tasks from the last to the first.
inline cpu::ParallelFor on(int threads) {
  return [threads](std::int64_t tasks, const std::function<void(std::int64_t)>& task) {
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t) {
      running.emplace_back([&, t] {
        for (std::int64_t i = tasks - 1 - t; i >= 0; i -= threads) task(i);
      });
    }
    for (std::thread& thread : running) thread.join();
  };
}

/// Which of weight and bias there are, and their dtype.
struct Parameters {
  bool weight = true;
  bool bias = true;
  Dtype weight_dtype;
  Dtype bias_dtype;
};

struct Problem {
  std::int64_t rows, cols;
  Dtype dtype;
  Parameters parameters;
  double eps = 1e-5;
  Matrix x, weight, bias, g;

  Problem(std::int64_t rows, std::int64_t cols, Dtype dtype, Parameters p,
          std::int64_t row_stride = -1, std::int64_t offset = 0)
      : rows(rows),
        cols(cols),
        dtype(dtype),
        parameters(p),
        x(dtype, rows, cols, row_stride, offset),
        weight(p.weight_dtype, 1, cols),
        bias(p.bias_dtype, 1, cols),
        g(dtype, rows, cols, row_stride, offset) {
    x.randomise(1);
    weight.randomise(2, 1, 0.5);
    bias.randomise(3);
    g.randomise(4);
  }
  Problem(std::int64_t rows, std::int64_t cols, Dtype dtype)
      : Problem(rows, cols, dtype, {true, true, dtype, dtype}) {}

  double w(std::int64_t c) const { return parameters.weight ? weight.get(0, c) : 1; }
  double b(std::int64_t c) const { return parameters.bias ? bias.get(0, c) : 0; }
};

struct Forward {
  Matrix y, mean, rstd;

  explicit Forward(Problem& p, const cpu::ParallelFor& threads = cpu::serial_for,
                   std::int64_t offset = 0)
      : y(p.dtype, p.rows, p.cols, -1, offset),
        mean(statistic_dtype(p.dtype), p.rows, 1),
        rstd(statistic_dtype(p.dtype), p.rows, 1) {
    LayerNormForward a;
    a.rows = p.rows;
    a.cols = p.cols;
    a.row_stride = p.x.row_stride();
    a.eps = p.eps;
    a.input = p.x.data();
    a.weight = p.parameters.weight ? p.weight.data() : nullptr;
    a.bias = p.parameters.bias ? p.bias.data() : nullptr;
    a.output = y.data();
    a.mean = mean.data();
    a.rstd = rstd.data();
    a.input_dtype = p.dtype;
    a.weight_dtype = p.weight.dtype();
    a.bias_dtype = p.bias.dtype();
    std::vector<std::max_align_t> workspace(
        cpu::layer_norm_forward_workspace(a) / sizeof(std::max_align_t) + 5);
    cpu::layer_norm_forward(a, aligned(workspace), threads);
  }

  template <class Storage>
  static void* aligned(Storage& storage) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
    return reinterpret_cast<void*>((address + 63) / 64 * 64);
  }
};

/// Gradients that were asked for; the others stay as they were made.
struct Wanted {
  bool input = true;
  bool weight = true;
  bool bias = true;
};

struct Backward {
  Matrix grad_input, grad_weight, grad_bias;

  Backward(Problem& p, Forward& f, const cpu::ParallelFor& threads = cpu::serial_for,
           Wanted wanted = {}, std::int64_t grad_output_row_stride = -1)
      : grad_input(p.dtype, p.rows, p.cols),
        grad_weight(p.weight.dtype(), 1, p.cols),
        grad_bias(p.bias.dtype(), 1, p.cols) {
    LayerNormBackward a;
    a.rows = p.rows;
    a.cols = p.cols;
    a.row_stride = p.x.row_stride();
    a.grad_output_row_stride =
        grad_output_row_stride < 0 ? p.g.row_stride() : grad_output_row_stride;
    a.grad_output = p.g.data();
    a.input = p.x.data();
    a.mean = f.mean.data();
    a.rstd = f.rstd.data();
    a.weight = p.parameters.weight ? p.weight.data() : nullptr;
    a.grad_input = wanted.input ? grad_input.data() : nullptr;
    a.grad_weight = wanted.weight ? grad_weight.data() : nullptr;
    a.grad_bias = wanted.bias ? grad_bias.data() : nullptr;
    a.input_dtype = p.dtype;
    a.weight_dtype = p.weight.dtype();
    a.bias_dtype = p.bias.dtype();
    std::vector<std::max_align_t> workspace(
        cpu::layer_norm_backward_workspace(a) / sizeof(std::max_align_t) + 5);
    std::memset(workspace.data(), 0xff, workspace.size() * sizeof(std::max_align_t));
    const bool needs_one = cpu::layer_norm_backward_workspace(a) > 0;
    cpu::layer_norm_backward(a, needs_one ? Forward::aligned(workspace) : nullptr, threads);
  }
};

}  // namespace simple_layernorm::cpu_test
