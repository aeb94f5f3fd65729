// A row's statistics in long double, from the definition.
#pragma once

#include <cmath>
#include <cstdint>

namespace emulation_tests {

/// The mean is kept as a distance from the first value, so that rows far from zero lose nothing.
struct ReferenceRow {
  long double origin, distance, rstd;

  ReferenceRow(const double* x, std::int64_t cols, double eps) : origin(x[0]) {
    long double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < cols; ++i) sum += x[i] - origin;
    distance = sum / cols;
    for (std::int64_t i = 0; i < cols; ++i) squares += centred(x[i]) * centred(x[i]);
    rstd = 1 / std::sqrt(squares / cols + static_cast<long double>(eps));
  }

  long double mean() const { return origin + distance; }
  long double centred(double x) const { return (x - origin) - distance; }
  long double x_hat(double x) const { return centred(x) * rstd; }
};

}  // namespace emulation_tests
