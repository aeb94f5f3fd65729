// Comparing a kernel's numbers with the reference's, and the bits of two runs.
#pragma once

#include <cstdint>
#include <string>

#include "driver/device_array.hpp"

namespace emulation_tests {

/// Half the distance of two neighbouring numbers: of the type that a dtype is computed in, and of
/// the dtype itself, relative to 1.
double compute_rounding(Dtype dtype);
double storage_rounding(Dtype dtype);

/// Ends the program unless `actual` is `expected` but for `tolerance`; where
/// that is no number, no number is expected.
void expect_close(const char* what, std::int64_t row, std::int64_t col, double actual,
                  double expected, double tolerance);

/// Ends the program unless the bits are the same. `row_bytes` serves to name the place.
void expect_same_bits(const char* what, const Bytes& actual, const Bytes& expected,
                      std::size_t row_bytes);

}  // namespace emulation_tests
