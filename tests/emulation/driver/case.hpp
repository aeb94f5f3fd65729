// What a test case is: a problem, the numbers in it, and the ways it may lie in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver/device_array.hpp"

namespace emulation_tests {

constexpr Dtype kAllDtypes[] = {Dtype::float32, Dtype::bfloat16, Dtype::float16, Dtype::float64};

enum class Parameter { absent, as_input, float32 };

/// Numbers that a row may hold; each is a way for LayerNorm to go wrong.
enum class Content {
  ordinary,
  far_from_zero,  ///< mean 1e4, spread 1e-3 where the dtype can tell them apart
  huge,           ///< squares overflow
  tiny,           ///< squares underflow, eps is 0
  constant,
  not_finite,  ///< one infinity, in the middle row
};

struct Case {
  std::int64_t rows = 1, cols = 1;
  Dtype dtype = Dtype::float32;
  Parameter weight = Parameter::absent, bias = Parameter::absent;
  bool statistics = true;    ///< forward: mean and rstd are wanted
  bool wide_output = false;  ///< output or grad_output is float32 where input has 16 bits
  Content content = Content::ordinary;
  bool grad_input = true, grad_weight = true, grad_bias = true;
  std::int64_t padding = 0;  ///< between rows; whole packs
  int multiprocessors = 4;
  bool heavy = false;  ///< so wide that fewer schedules and placements must do

  double eps() const { return content == Content::tiny ? 0.0 : 0.01; }
  Dtype weight_dtype() const { return weight == Parameter::as_input ? dtype : compute_if_16(); }
  Dtype bias_dtype() const { return bias == Parameter::as_input ? dtype : compute_if_16(); }
  Dtype statistic_dtype() const { return simple_layernorm::statistic_dtype(dtype); }
  Dtype output_dtype() const { return wide_output ? statistic_dtype() : dtype; }
  std::string text() const;

 private:
  Dtype compute_if_16() const { return dtype == Dtype::float64 ? dtype : Dtype::float32; }
};

/// Where arrays begin, in elements after an aligned address. Rows of each may lie differently.
struct Offsets {
  std::int64_t input = 0, grad_output = 0;
  std::int64_t output = 0;  ///< or grad_input
  std::int64_t parameters = 0;
};

/// Rows [first, first + count) of a case, somewhere in memory.
struct Placement {
  std::int64_t first = 0, count = 0;
  std::int64_t padding = 0;  ///< between rows that are read
  Offsets offsets;
  std::string text() const;
};

/// Rows [first, first + count) of a case in places that take other code for the same bits: aligned
/// alone, misaligned alone, and all together.
std::vector<Placement> misaligned(const Case& c, std::int64_t first, std::int64_t count);

/// The numbers of a case, already rounded to their dtypes.
struct Numbers {
  std::vector<double> input, grad_output;  ///< [rows, cols]
  std::vector<double> weight, bias;        ///< [cols]; ones and zeros where absent
};

Numbers numbers_of(const Case& c);
const char* name_of(Dtype dtype);

/// The cases that a driver runs: every path with every dtype that has it, rows that fill it and
/// rows that do not. With `cols`, rows of those lengths instead.
std::vector<Case> forward_cases(const std::vector<std::int64_t>& cols = {});
std::vector<Case> backward_cases(const std::vector<std::int64_t>& cols = {});

/// Runs a case under all schedules and placements, and reports the first difference from the
/// reference or between two runs by ending the program.
void check_forward(const Case& c);
void check_backward(const Case& c);

}  // namespace emulation_tests
