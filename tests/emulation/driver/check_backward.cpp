// The backward pass: against a reference in long double, and bit by bit against itself.

#include <cmath>

#include "driver/case.hpp"
#include "driver/comparison.hpp"
#include "driver/paths.hpp"
#include "driver/reference.hpp"
#include "driver/schedules.hpp"
#include "gpu/library_interface.hpp"

namespace emulation_tests {
namespace {

struct Result {
  Bytes grad_input, grad_weight, grad_bias;
};

std::vector<ReferenceRow> reference_rows(const Case& c, const Numbers& numbers) {
  std::vector<ReferenceRow> rows;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    rows.emplace_back(&numbers.input[static_cast<std::size_t>(row * c.cols)], c.cols, c.eps());
  }
  return rows;
}

/// Rows of a matrix [rows, cols] as a placement wants them.
DeviceArray placed(const std::vector<double>& values, Dtype dtype, std::int64_t cols,
                   const Placement& place, std::int64_t offset) {
  const std::int64_t stride = cols + place.padding;
  DeviceArray array(dtype, (place.count - 1) * stride + cols, offset);
  for (std::int64_t row = 0; row < place.count; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      const std::int64_t i = (place.first + row) * cols + col;
      array.write(row * stride + col, values[static_cast<std::size_t>(i)]);
    }
  }
  array.make_read_only();
  return array;
}

Result run(const Case& c, const Numbers& numbers, const std::vector<ReferenceRow>& reference,
           const Placement& place) {
  const Offsets& at = place.offsets;
  const DeviceArray input = placed(numbers.input, c.dtype, c.cols, place, at.input);
  const DeviceArray grad_output =
      placed(numbers.grad_output, c.output_dtype(), c.cols, place, at.grad_output);
  const Placement one_row{0, 1, 0, {}}, statistics{place.first, place.count, 0, {}};
  DeviceArray weight;
  if (c.weight != Parameter::absent) {
    weight = placed(numbers.weight, c.weight_dtype(), c.cols, one_row, at.parameters);
  }
  std::vector<double> means, rstds;
  for (const ReferenceRow& row : reference) {
    means.push_back(static_cast<double>(row.mean()));
    rstds.push_back(static_cast<double>(row.rstd));
  }
  const DeviceArray mean = placed(means, c.statistic_dtype(), 1, statistics, 0);
  const DeviceArray rstd = placed(rstds, c.statistic_dtype(), 1, statistics, 0);
  DeviceArray grad_input, grad_weight, grad_bias;
  if (c.grad_input) grad_input = DeviceArray(c.dtype, place.count * c.cols, at.output);
  if (c.grad_weight) grad_weight = DeviceArray(c.weight_dtype(), c.cols, at.parameters);
  if (c.grad_bias) grad_bias = DeviceArray(c.bias_dtype(), c.cols, at.parameters);

  simple_layernorm::LayerNormBackward a;
  a.rows = place.count;
  a.cols = c.cols;
  a.row_stride = a.grad_output_row_stride = c.cols + place.padding;
  a.grad_output = grad_output.data();
  a.input = input.data();
  a.mean = mean.data();
  a.rstd = rstd.data();
  a.weight = weight.data();
  a.grad_input = grad_input.data();
  a.grad_weight = grad_weight.data();
  a.grad_bias = grad_bias.data();
  a.input_dtype = c.dtype;
  a.weight_dtype = c.weight_dtype();
  a.bias_dtype = c.bias_dtype();
  a.wide_output = c.wide_output;

  const Bytes grad_output_before = grad_output.contents();
  const auto& library = *simple_layernorm_gpu_interface();
  DeviceArray workspace;
  if (const std::size_t bytes = library.backward_workspace(a)) {
    workspace = DeviceArray(Dtype::float64, static_cast<std::int64_t>((bytes + 7) / 8));
  }
  library.backward(a, workspace.data(), nullptr);
  expect_same_bits("grad_output after the backward pass", grad_output.contents(),
                   grad_output_before, 1);
  return {grad_input.contents(), grad_weight.contents(), grad_bias.contents()};
}

void compare(const Case& c, const Numbers& numbers, const std::vector<ReferenceRow>& reference,
             const Result& result) {
  const double u = compute_rounding(c.dtype);
  const std::size_t cols = static_cast<std::size_t>(c.cols);
  std::vector<long double> weight_sum(cols), bias_sum(cols), weight_size(cols), bias_size(cols);
  const auto element = [](const Bytes& bytes, std::int64_t i, Dtype dtype) {
    return read_element(&bytes[static_cast<std::size_t>(i) * simple_layernorm::size_of(dtype)],
                        dtype);
  };
  const auto storing = [](Dtype dtype, double value) {
    const double rounding = storage_rounding(dtype);
    return rounding * std::fabs(value) + 0x1p-25 * (rounding > 0x1p-24);
  };
  for (std::int64_t row = 0; row < c.rows; ++row) {
    const double* x = &numbers.input[static_cast<std::size_t>(row * c.cols)];
    const double* g = &numbers.grad_output[static_cast<std::size_t>(row * c.cols)];
    const ReferenceRow& r = reference[static_cast<std::size_t>(row)];
    long double h_sum = 0, product_sum = 0, h_size = 0, product_size = 0;
    for (std::size_t i = 0; i < cols; ++i) {
      const long double x_hat = r.x_hat(x[i]), h = g[i] * numbers.weight[i];
      h_sum += h;
      product_sum += h * x_hat;
      h_size += std::fabs(h);
      product_size += std::fabs(h * x_hat);
      weight_sum[i] += g[i] * x_hat;
      weight_size[i] += std::fabs(g[i]) * (1 + std::fabs(x_hat));
      bias_sum[i] += g[i];
      bias_size[i] += std::fabs(g[i]);
    }
    for (std::size_t i = 0; c.grad_input && i < cols; ++i) {
      const long double x_hat = r.x_hat(x[i]), h = g[i] * numbers.weight[i];
      const double expected =
          static_cast<double>(r.rstd * (h - h_sum / c.cols - x_hat * product_sum / c.cols));
      const double size =
          static_cast<double>(r.rstd * (std::fabs(h) + h_size / c.cols +
                                        (1 + std::fabs(x_hat)) * (product_size + h_size) / c.cols));
      expect_close("grad_input", row, static_cast<std::int64_t>(i),
                   element(result.grad_input, row * c.cols + static_cast<std::int64_t>(i), c.dtype),
                   expected, 8 * u * size + storing(c.dtype, expected));
    }
  }
  for (std::size_t i = 0; i < cols; ++i) {
    const std::int64_t col = static_cast<std::int64_t>(i);
    const double weight = static_cast<double>(weight_sum[i]);
    const double bias = static_cast<double>(bias_sum[i]);
    if (c.grad_weight) {
      expect_close("grad_weight", 0, col, element(result.grad_weight, col, c.weight_dtype()),
                   weight,
                   8 * u * static_cast<double>(weight_size[i]) + storing(c.weight_dtype(), weight));
    }
    if (c.grad_bias) {
      expect_close("grad_bias", 0, col, element(result.grad_bias, col, c.bias_dtype()), bias,
                   8 * u * static_cast<double>(bias_size[i]) + storing(c.bias_dtype(), bias));
    }
  }
}

}  // namespace

void check_backward(const Case& c) {
  emulation::current_case = backward_path(c) + ", " + c.text();
  const Numbers numbers = numbers_of(c);
  const std::vector<ReferenceRow> reference = reference_rows(c, numbers);
  const auto orders = schedules(c, waits(backward_path(c)));
  const std::size_t row_bytes = static_cast<std::size_t>(c.cols) * size_of(c.dtype);
  const auto expect_same = [&](const Result& actual, const Result& expected) {
    expect_same_bits("grad_input", actual.grad_input, expected.grad_input, row_bytes);
    expect_same_bits("grad_weight", actual.grad_weight, expected.grad_weight, 1);
    expect_same_bits("grad_bias", actual.grad_bias, expected.grad_bias, 1);
  };

  emulation::schedule = orders[0];
  const Placement everything{0, c.rows, c.padding, {}}, last{c.rows - 1, 1, 0, {3, 3, 3, 3}};
  const Result first = run(c, numbers, reference, everything);
  compare(c, numbers, reference, first);
  for (std::size_t i = 1; i < orders.size(); ++i) {
    emulation::schedule = orders[i];
    expect_same(run(c, numbers, reference, everything), first);
  }
  for (const Placement& place : misaligned(c, 0, c.rows)) {
    emulation::current_case = backward_path(c) + ", " + c.text() + ", " + place.text();
    expect_same(run(c, numbers, reference, place), first);
  }

  // A row's grad_input does not depend on its neighbours or on the plan for that many rows.
  emulation::current_case = backward_path(c) + ", " + c.text() + ", " + last.text();
  const Result alone = run(c, numbers, reference, last);
  const Bytes& all = first.grad_input;
  const std::size_t skipped = c.grad_input ? all.size() - row_bytes : 0;
  expect_same_bits("grad_input", alone.grad_input,
                   Bytes(all.begin() + static_cast<std::ptrdiff_t>(skipped), all.end()), row_bytes);
}

}  // namespace emulation_tests
