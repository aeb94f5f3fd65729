// The forward pass: against a reference in long double, and bit by bit against itself.

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
  Bytes output, mean, rstd;
};

DeviceArray row_of(const std::vector<double>& values, Parameter parameter, Dtype dtype,
                   std::int64_t offset) {
  if (parameter == Parameter::absent) return {};
  DeviceArray array(dtype, static_cast<std::int64_t>(values.size()), offset);
  for (std::size_t i = 0; i < values.size(); ++i)
    array.write(static_cast<std::int64_t>(i), values[i]);
  array.make_read_only();
  return array;
}

Result run(const Case& c, const Numbers& numbers, const Placement& place) {
  const std::int64_t stride = c.cols + place.padding;
  DeviceArray input(c.dtype, (place.count - 1) * stride + c.cols, place.offsets.input);
  for (std::int64_t row = 0; row < place.count; ++row) {
    for (std::int64_t col = 0; col < c.cols; ++col) {
      const std::int64_t i = (place.first + row) * c.cols + col;
      input.write(row * stride + col, numbers.input[static_cast<std::size_t>(i)]);
    }
  }
  input.make_read_only();
  const DeviceArray weight =
      row_of(numbers.weight, c.weight, c.weight_dtype(), place.offsets.parameters);
  const DeviceArray bias = row_of(numbers.bias, c.bias, c.bias_dtype(), place.offsets.parameters);
  const DeviceArray output(c.output_dtype(), place.count * c.cols, place.offsets.output);
  DeviceArray mean, rstd;
  if (c.statistics) {
    mean = DeviceArray(c.statistic_dtype(), place.count);
    rstd = DeviceArray(c.statistic_dtype(), place.count);
  }

  simple_layernorm::LayerNormForward a;
  a.rows = place.count;
  a.cols = c.cols;
  a.row_stride = stride;
  a.eps = c.eps();
  a.input = input.data();
  a.weight = weight.data();
  a.bias = bias.data();
  a.output = output.data();
  a.mean = mean.data();
  a.rstd = rstd.data();
  a.input_dtype = c.dtype;
  a.weight_dtype = c.weight_dtype();
  a.bias_dtype = c.bias_dtype();
  a.wide_output = c.wide_output;

  const Bytes input_before = input.contents();
  const auto& library = *simple_layernorm_gpu_interface();
  DeviceArray workspace;
  if (const std::size_t bytes = library.forward_workspace(a)) {
    workspace = DeviceArray(Dtype::float64, static_cast<std::int64_t>((bytes + 7) / 8));
  }
  library.forward(a, workspace.data(), nullptr);
  expect_same_bits("input after the forward pass", input.contents(), input_before, 1);
  return {output.contents(), mean.contents(), rstd.contents()};
}

void compare_row(const Case& c, const Numbers& numbers, std::int64_t row, const Result& result) {
  const double* x = &numbers.input[static_cast<std::size_t>(row * c.cols)];
  const ReferenceRow reference(x, c.cols, c.eps());
  // Roundings on the way; sums of very many values have more.
  const double units = 6 + static_cast<double>(c.cols) / 25000;
  const double u = compute_rounding(c.dtype), stored = storage_rounding(c.output_dtype());
  const auto element = [](const Bytes& bytes, std::int64_t i, Dtype dtype) {
    return read_element(&bytes[static_cast<std::size_t>(i) * simple_layernorm::size_of(dtype)],
                        dtype);
  };
  for (std::int64_t i = 0; i < c.cols; ++i) {
    const double w = numbers.weight[static_cast<std::size_t>(i)];
    const double b = numbers.bias[static_cast<std::size_t>(i)];
    const double x_hat = static_cast<double>(reference.x_hat(x[i])), y = x_hat * w + b;
    const double tolerance = units * u * (std::fabs(w) * (1 + std::fabs(x_hat)) + std::fabs(b)) +
                             stored * std::fabs(y) + 0x1p-25 * (stored > 0x1p-24);
    expect_close("output", row, i, element(result.output, row * c.cols + i, c.output_dtype()), y,
                 tolerance);
  }
  if (!c.statistics) return;
  const double m = static_cast<double>(reference.mean());
  const double r = static_cast<double>(reference.rstd);
  expect_close("mean", row, 0, element(result.mean, row, c.statistic_dtype()), m,
               2 * u * std::fabs(m) + units * u / r);
  // Narrow 16-bit rows are centred on their first value (own_moments in gpu/lanes_kernel.hpp),
  // whose squared distance from the mean magnifies the roundings of the variance.
  const bool is_centred_on_first =
      simple_layernorm::size_of(c.dtype) == 2 && !c.wide_output && c.cols <= 256;
  const double distance = static_cast<double>(reference.distance) * r;
  const double magnified = is_centred_on_first ? distance * distance : 0;
  expect_close("rstd", row, 0, element(result.rstd, row, c.statistic_dtype()), r,
               (units + 2 + units / 2 * magnified) * u * r);
}

Bytes rows_of(const Bytes& bytes, std::int64_t first, std::int64_t count, std::size_t row_bytes) {
  if (bytes.empty()) return {};
  const auto begin = bytes.begin() + first * static_cast<std::int64_t>(row_bytes);
  return Bytes(begin, begin + count * static_cast<std::int64_t>(row_bytes));
}

void expect_same_rows(const Case& c, const Result& all, const Result& some,
                      const Placement& place) {
  const std::size_t row = static_cast<std::size_t>(c.cols) * size_of(c.output_dtype());
  const std::size_t statistic = size_of(c.statistic_dtype());
  const auto part = [&](const Bytes& bytes, std::size_t row_bytes) {
    return rows_of(bytes, place.first, place.count, row_bytes);
  };
  expect_same_bits("output", some.output, part(all.output, row), row);
  expect_same_bits("mean", some.mean, part(all.mean, statistic), statistic);
  expect_same_bits("rstd", some.rstd, part(all.rstd, statistic), statistic);
}

}  // namespace

void check_forward(const Case& c) {
  emulation::current_case = forward_path(c) + ", " + c.text();
  const Numbers numbers = numbers_of(c);
  const Placement everything{0, c.rows, c.padding, {}};
  const auto orders = schedules(c, waits(forward_path(c)));

  emulation::schedule = orders[0];
  const Result first = run(c, numbers, everything);
  for (std::int64_t row = 0; row < c.rows; ++row) compare_row(c, numbers, row, first);
  for (std::size_t i = 1; i < orders.size(); ++i) {
    emulation::schedule = orders[i];
    expect_same_rows(c, first, run(c, numbers, everything), everything);
  }
  // A row's bits do not depend on its neighbours, its place, or the plan for that many rows.
  std::vector<Placement> places = misaligned(c, 0, c.rows);
  if (!c.heavy) {
    places.push_back({c.rows - 1, 1, 0, {}});
    places.push_back({0, 1, 0, {3, 0, 1, 3}});
  }
  for (const Placement& place : places) {
    Case moved = c;
    moved.rows = place.count;
    emulation::current_case = forward_path(c) + ", " + c.text() + ", against " +
                              forward_path(moved) + ", " + place.text();
    expect_same_rows(c, first, run(c, numbers, place), place);
  }
}

}  // namespace emulation_tests
