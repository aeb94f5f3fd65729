// See comparison.hpp.

#include "driver/comparison.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace emulation_tests {
namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "wrong result: %s\n  case      %s\n  schedule  %s\n", what.c_str(),
               emulation::current_case.c_str(), emulation::schedule.text().c_str());
  std::exit(1);
}

}  // namespace

double compute_rounding(Dtype dtype) { return dtype == Dtype::float64 ? 0x1p-53 : 0x1p-24; }

double storage_rounding(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64: return 0x1p-53;
    case Dtype::float32: return 0x1p-24;
    case Dtype::float16: return 0x1p-11;
    case Dtype::bfloat16: return 0x1p-8;
  }
  return 0;
}

void expect_close(const char* what, std::int64_t row, std::int64_t col, double actual,
                  double expected, double tolerance) {
  if (!std::isfinite(expected) && !std::isfinite(actual)) return;
  if (std::fabs(actual - expected) <= tolerance) return;
  char text[256];
  std::snprintf(text, sizeof text, "%s[%ld, %ld]: expected %.9g within %.2g, but got %.9g", what,
                static_cast<long>(row), static_cast<long>(col), expected, tolerance, actual);
  fail(text);
}

void expect_same_bits(const char* what, const Bytes& actual, const Bytes& expected,
                      std::size_t row_bytes) {
  if (actual == expected) return;
  std::size_t at = 0;
  while (at < actual.size() && at < expected.size() && actual[at] == expected[at]) ++at;
  fail(std::string(what) + ": expected the bits of the first run, but byte " +
       std::to_string(at % row_bytes) + " of row " + std::to_string(at / row_bytes) + " differs");
}

}  // namespace emulation_tests
