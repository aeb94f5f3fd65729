// The numbers of a case.

#include "driver/case.hpp"

#include <cmath>
#include <random>

namespace emulation_tests {
namespace {

const char* name_of(Parameter parameter) {
  switch (parameter) {
    case Parameter::absent: return "no";
    case Parameter::as_input: return "the input's";
    case Parameter::float32: return "float32";
  }
  return "?";
}

const char* name_of(Content content) {
  switch (content) {
    case Content::ordinary: return "ordinary";
    case Content::far_from_zero: return "far from zero";
    case Content::huge: return "huge";
    case Content::tiny: return "tiny";
    case Content::constant: return "constant";
    case Content::not_finite: return "not finite";
  }
  return "?";
}

/// Mean and spread of a content's rows, as far as the dtype can hold them.
struct Scale {
  double mean, spread;
};

Scale scale_of(Content content, Dtype dtype) {
  const bool half = dtype == Dtype::float16, brain = dtype == Dtype::bfloat16;
  const bool wide = dtype == Dtype::float64;
  switch (content) {
    case Content::far_from_zero:
      return half || brain ? Scale{64, 1} : wide ? Scale{1e8, 1e-4} : Scale{1e4, 1e-3};
    case Content::huge:
      return half ? Scale{0, 1e4} : wide ? Scale{1e199, 1e200} : Scale{1e29, 1e30};
    case Content::tiny: return half ? Scale{0, 1e-3} : wide ? Scale{0, 1e-200} : Scale{0, 1e-30};
    case Content::constant: return {3, 0};
    case Content::ordinary:
    case Content::not_finite: break;
  }
  return {0.5, 2};
}

}  // namespace

const char* name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64: return "float64";
    case Dtype::float32: return "float32";
    case Dtype::float16: return "float16";
    case Dtype::bfloat16: return "bfloat16";
  }
  return "?";
}

std::string Case::text() const {
  std::string text = std::to_string(rows) + " x " + std::to_string(cols) + " " +
                     emulation_tests::name_of(dtype) + ", " + name_of(content) + " rows, " +
                     name_of(weight) + " weight, " + name_of(bias) + " bias";
  if (wide_output) text += ", wide output";
  if (!statistics) text += ", no statistics";
  if (!grad_input) text += ", no grad_input";
  if (!grad_weight) text += ", no grad_weight";
  if (!grad_bias) text += ", no grad_bias";
  return text;
}

std::string Placement::text() const {
  return "rows " + std::to_string(first) + " to " + std::to_string(first + count - 1) +
         ", padding " + std::to_string(padding) + ", input at " + std::to_string(offsets.input) +
         ", grad_output at " + std::to_string(offsets.grad_output) + ", output at " +
         std::to_string(offsets.output) + ", parameters at " + std::to_string(offsets.parameters);
}

std::vector<Placement> misaligned(const Case& c, std::int64_t first, std::int64_t count) {
  // Elements of a pack; which of them rows begin at differs from case to case.
  const std::int64_t pack = 16 / static_cast<std::int64_t>(size_of(c.dtype));
  const std::int64_t some = 1 + (c.cols / pack + c.rows) % (pack - 1);
  const std::int64_t other = pack - some;
  std::vector<Placement> places = {{first, count, 0, {some, other, other - 1, 0}},
                                   {first, count, 0, {0, some, other, 0}},
                                   {first, count, 3, {1, other, some, 1}}};
  // One is enough where it takes long, and with the longest rows those that are misaligned anyway.
  if (c.heavy) places = {places[static_cast<std::size_t>(some) % 3]};
  if (c.cols > 100000 && c.cols % 2 == 0) places.clear();
  return places;
}

Numbers numbers_of(const Case& c) {
  std::mt19937 random(static_cast<unsigned>(c.cols * 7 + c.rows));
  std::normal_distribution<double> normal;
  const Scale scale = scale_of(c.content, c.dtype);
  Numbers numbers;
  for (std::int64_t i = 0; i < c.rows * c.cols; ++i) {
    const double x = scale.mean + scale.spread * normal(random);
    numbers.input.push_back(rounded(x, c.dtype));
    numbers.grad_output.push_back(rounded(normal(random), c.output_dtype()));
  }
  if (c.content == Content::not_finite) {
    numbers.input[static_cast<std::size_t>(c.rows / 2 * c.cols + c.cols / 2)] = INFINITY;
  }
  for (std::int64_t i = 0; i < c.cols; ++i) {
    const double weight = rounded(1 + 0.5 * normal(random), c.weight_dtype());
    const double bias = rounded(normal(random), c.bias_dtype());
    numbers.weight.push_back(c.weight == Parameter::absent ? 1 : weight);
    numbers.bias.push_back(c.bias == Parameter::absent ? 0 : bias);
  }
  return numbers;
}

}  // namespace emulation_tests
