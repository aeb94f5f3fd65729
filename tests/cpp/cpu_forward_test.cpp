// The forward pass on the CPU: values against long double, and the bits that must not change.

#include <gtest/gtest.h>

#include <limits>

#include "cpu_problem.hpp"

namespace simple_layernorm::cpu_test {
namespace {

constexpr Dtype kDtypes[] = {Dtype::float32, Dtype::float64, Dtype::float16, Dtype::bfloat16};
constexpr std::int64_t kCols[] = {1,  2,   3,   15,  16,   17,   31,   32,   33,   63,   64,
                                  65, 127, 768, 769, 1000, 1023, 4096, 4097, 8193, 65537};

/// All combinations of weight and bias that an input of this dtype may come with.
std::vector<Parameters> parameters_for(Dtype dtype) {
  std::vector<Dtype> own = {dtype};
  if (size_of(dtype) == 2) own.push_back(Dtype::float32);
  std::vector<Parameters> all;
  for (const bool weight : {false, true}) {
    for (const bool bias : {false, true}) {
      for (const Dtype w : own) {
        for (const Dtype b : own) all.push_back({weight, bias, w, b});
      }
    }
  }
  return all;
}

/// How far an output may be from the exact result: one rounding to its dtype, and a few of the
/// arithmetic's on the way.
double allowed(Dtype dtype, double y, double term, double bias) {
  const double arithmetic =
      8 * epsilon_of(statistic_dtype(dtype)) * (std::fabs(term) + std::fabs(bias) + 0.5);
  return 0.501 * ulp_of(dtype, y) + arithmetic;
}

/// `lost`: how many times the rounding of the arithmetic may have grown in a row's statistics.
void expect_right(Problem& p, const Forward& f, long double eps = 1e-5L, double lost = 1) {
  for (std::int64_t r = 0; r < p.rows; ++r) {
    long double mean = 0, variance = 0;
    for (std::int64_t c = 0; c < p.cols; ++c) mean += p.x.get(r, c);
    mean /= p.cols;
    for (std::int64_t c = 0; c < p.cols; ++c)
      variance += (p.x.get(r, c) - mean) * (p.x.get(r, c) - mean);
    const long double rstd = 1 / std::sqrt(variance / p.cols + eps);
    const double tolerance = 4 * lost * epsilon_of(f.mean.dtype());
    ASSERT_NEAR(f.rstd.get(r, 0) / rstd, 1, tolerance);
    ASSERT_NEAR(f.mean.get(r, 0), mean, tolerance * std::fabs(mean) + tolerance / rstd);
    for (std::int64_t c = 0; c < p.cols; ++c) {
      const double term = (p.x.get(r, c) - mean) * rstd * p.w(c);
      const double expected = term + p.b(c);
      ASSERT_NEAR(f.y.get(r, c), expected, allowed(p.dtype, expected, lost * term, p.b(c)))
          << "row " << r << " column " << c << " of " << p.cols;
    }
  }
  ASSERT_TRUE(f.y.intact());
}

::testing::AssertionResult same_bits(const Matrix& a, std::int64_t row_a, const Matrix& b,
                                     std::int64_t row_b) {
  if (std::memcmp(a.row(row_a), b.row(row_b), a.row_bytes()) == 0)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "rows " << row_a << " and " << row_b << " differ";
}

TEST(CpuForward, IsRightForEveryDtypeAndWidth) {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t cols : kCols) {
      // Of short rows more than a tile, so that every place in it is seen.
      Problem p(cols > 8000 ? 2 : cols > 1000 ? 5 : 37, cols, dtype);
      expect_right(p, Forward(p));
    }
  }
}

TEST(CpuForward, IsRightForEveryWeightAndBias) {
  for (const Dtype dtype : kDtypes) {
    for (const Parameters& parameters : parameters_for(dtype)) {
      for (const std::int64_t cols : {5, 96, 1001, 4113}) {
        Problem p(3, cols, dtype, parameters);
        expect_right(p, Forward(p));
      }
    }
  }
}

TEST(CpuForward, ReadsStridedAndMisalignedRowsInPlace) {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t cols : {33, 64, 1000}) {
      for (const std::int64_t offset : {1, 3, 7}) {
        Problem p(4, cols, dtype, {true, true, dtype, dtype}, cols + offset, offset);
        expect_right(p, Forward(p, cpu::serial_for, offset));
      }
    }
  }
}

TEST(CpuForward, EmptyShapesWriteNothing) {
  Problem no_rows(0, 7, Dtype::float32);
  EXPECT_TRUE(Forward(no_rows).y.intact());
  Problem no_cols(3, 0, Dtype::float32);
  EXPECT_TRUE(Forward(no_cols).y.intact());
}

TEST(CpuForward, BitsOfARowDependOnTheRowAlone) {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t cols : {1, 31, 64, 100, 769, 4097, 70001}) {
      const std::int64_t rows = cols > 5000 ? 3 : 70;
      Problem all(rows, cols, dtype);
      const Forward together(all);
      const Forward shared(all, on(3));
      for (std::int64_t r = 0; r < rows; r += rows > 4 ? 23 : 1) {
        Problem alone(1, cols, dtype, all.parameters, cols + 5, r % 5);
        for (std::int64_t c = 0; c < cols; ++c) alone.x.set(0, c, all.x.get(r, c));
        const Forward single(alone, cpu::serial_for, 1);
        EXPECT_TRUE(same_bits(together.y, r, single.y, 0)) << "of " << cols;
        EXPECT_TRUE(same_bits(together.y, r, shared.y, r)) << "of " << cols;
        EXPECT_TRUE(same_bits(together.rstd, r, single.rstd, 0)) << "of " << cols;
      }
    }
  }
}

TEST(CpuForward, SharedColumnsGiveTheBitsOfRowsAlone) {
  // 65 rows of this length are shared out whole, fewer by columns.
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16}) {
    Problem many(65, 65539, dtype);
    const Forward whole(many);
    Problem few(2, 65539, dtype);
    for (const int threads : {1, 2, 7}) {
      const Forward shared(few, on(threads));
      for (std::int64_t r = 0; r < 2; ++r) EXPECT_TRUE(same_bits(whole.y, r, shared.y, r));
    }
  }
}

TEST(CpuForward, LargeMeanAndSmallSpreadComeOutRight) {
  for (const std::int64_t cols : {100, 4096, 10000}) {
    Problem p(3, cols, Dtype::float32);
    p.x.randomise(9, 1e4, 1e-3);
    p.eps = 1e-12;
    const Forward f(p);
    for (std::int64_t r = 0; r < p.rows; ++r) {
      long double mean = 0, variance = 0;
      for (std::int64_t c = 0; c < cols; ++c) mean += p.x.get(r, c);
      mean /= cols;
      for (std::int64_t c = 0; c < cols; ++c)
        variance += (p.x.get(r, c) - mean) * (p.x.get(r, c) - mean);
      const long double rstd = 1 / std::sqrt(variance / cols + p.eps);
      for (std::int64_t c = 0; c < cols; ++c) {
        const double expected = (p.x.get(r, c) - mean) * rstd * p.w(c) + p.b(c);
        ASSERT_NEAR(f.y.get(r, c), expected, 1e-5);
      }
    }
  }
}

TEST(CpuForward, RowsThatBeginFarFromTheirMeanComeOutRight) {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t cols : {64, 1000, 2048, 5000}) {
      Problem p(9, cols, dtype);
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t c = 0; c < 32; ++c) p.x.set(r, c, 1000 + r);
      }
      // 32 columns of a chunk of 2048 choose the shift of 16-bit rows.
      const double lost = size_of(dtype) == 2 ? std::min(cols, std::int64_t{2048}) / 32 : 1;
      expect_right(p, Forward(p), 1e-5L, lost);
    }
  }
}

TEST(CpuForward, RowsWhoseSquaresOverflowOrVanishComeOutRight) {
  for (const double spread : {1e30, 3e37, 1e-20, 1e-30}) {
    for (const std::int64_t cols : {33, 5000, 70000}) {
      Problem p(cols == 33 ? 9 : 2, cols, Dtype::float32);  // 9: a row in every lane
      p.x.randomise(5, 0, spread);
      p.eps = 0;
      const Forward f(p);
      for (std::int64_t r = 0; r < p.rows; ++r) {
        long double mean = 0, variance = 0;
        for (std::int64_t c = 0; c < cols; ++c) mean += p.x.get(r, c);
        mean /= cols;
        for (std::int64_t c = 0; c < cols; ++c)
          variance += (p.x.get(r, c) - mean) * (p.x.get(r, c) - mean);
        const long double rstd = 1 / std::sqrt(variance / cols);
        for (std::int64_t c = 0; c < cols; ++c) {
          const double term = (p.x.get(r, c) - mean) * rstd * p.w(c);
          ASSERT_NEAR(f.y.get(r, c), term + p.b(c), allowed(p.dtype, term + p.b(c), term, p.b(c)));
        }
      }
    }
  }
}

TEST(CpuForward, NanAndInfinityStayInTheirRow) {
  for (const Dtype dtype : kDtypes) {
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      Problem p(9, 70, dtype);
      const Forward clean(p);
      p.x.set(4, 69, bad);
      const Forward f(p);
      for (std::int64_t r = 0; r < p.rows; ++r) {
        if (r == 4) {
          for (std::int64_t c = 0; c < p.cols; ++c) EXPECT_TRUE(std::isnan(f.y.get(r, c)));
        } else {
          EXPECT_TRUE(same_bits(clean.y, r, f.y, r));
        }
      }
    }
  }
}

TEST(CpuForward, OutputIsRoundedToNearestEvenAndKeepsSubnormalsAndNan) {
  // With two columns x_hat is +-1, so that output is bias +- weight: chosen to hit ties, subnormal
  // results and NaN of every sign and payload.
  const float values[] = {1.00390625f, 1.01171875f, 0x1p-127f, 0x1.8p-130f, 0x1p-133f,
                          3e-39f,      65519.f,     65520.f,   0x1p-24f,    0x1p-25f,
                          0x1.8p-24f,  6e-8f,       3.4e38f};
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16}) {
    for (const float value : values) {
      Problem p(1, 2, dtype, {true, true, Dtype::float32, Dtype::float32});
      p.eps = 0;
      p.x.set(0, 0, 1);
      p.x.set(0, 1, -1);
      for (int c = 0; c < 2; ++c) {
        p.weight.set(0, c, value);
        p.bias.set(0, c, 0);
      }
      Matrix expected(dtype, 1, 2);
      expected.set(0, 0, value);
      expected.set(0, 1, -value);
      EXPECT_TRUE(same_bits(Forward(p).y, 0, expected, 0)) << value;
    }
    Problem p(1, 64, dtype, {false, true, Dtype::float32, Dtype::float32});
    for (int c = 0; c < 64; ++c) {
      static_cast<std::uint32_t*>(p.bias.data())[c] = (c % 2 ? 0x7f800001u : 0xffffffffu);
    }
    const Forward f(p);
    for (int c = 0; c < 64; ++c) EXPECT_TRUE(std::isnan(f.y.get(0, c)));
  }
}

TEST(CpuForward, NanForEpsGivesNan) {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t cols : {40, 200, 5000}) {
      Problem p(20, cols, dtype);
      const std::uint64_t all_ones = ~std::uint64_t{0} >> 1;
      std::memcpy(&p.eps, &all_ones, sizeof p.eps);
      const Forward f(p);
      for (std::int64_t c = 0; c < cols; ++c) EXPECT_TRUE(std::isnan(f.y.get(7, c)));
    }
  }
}

}  // namespace
}  // namespace simple_layernorm::cpu_test
