// The backward pass on the CPU: values against long double, determinism, and what is not asked for.

#include <gtest/gtest.h>

#include "cpu_problem.hpp"

namespace simple_layernorm::cpu_test {
namespace {

constexpr Dtype kDtypes[] = {Dtype::float32, Dtype::float64, Dtype::float16, Dtype::bfloat16};

bool same_bits(const Matrix& a, std::int64_t row_a, const Matrix& b, std::int64_t row_b) {
  return std::memcmp(a.row(row_a), b.row(row_b), a.row_bytes()) == 0;
}

/// Gradients in long double, each with the sum of magnitudes that rounding errors are relative to.
struct Reference {
  std::vector<long double> input, input_scale, weight, weight_scale, bias, bias_scale;

  explicit Reference(const Problem& p, bool repeated_g = false)
      : input(p.rows * p.cols),
        input_scale(p.rows * p.cols),
        weight(p.cols),
        weight_scale(p.cols),
        bias(p.cols),
        bias_scale(p.cols) {
    for (std::int64_t r = 0; r < p.rows; ++r) {
      const auto g = [&](std::int64_t c) -> long double { return p.g.get(repeated_g ? 0 : r, c); };
      long double mean = 0, variance = 0, h_average = 0, h_x_hat = 0;
      for (std::int64_t c = 0; c < p.cols; ++c)
        mean += p.x.get(r, c) / static_cast<long double>(p.cols);
      for (std::int64_t c = 0; c < p.cols; ++c) {
        variance += (p.x.get(r, c) - mean) * (p.x.get(r, c) - mean) / p.cols;
      }
      const long double rstd = 1 / std::sqrt(variance + static_cast<long double>(p.eps));
      const auto x_hat = [&](std::int64_t c) { return (p.x.get(r, c) - mean) * rstd; };
      for (std::int64_t c = 0; c < p.cols; ++c) {
        h_average += g(c) * p.w(c) / p.cols;
        h_x_hat += g(c) * p.w(c) * x_hat(c) / p.cols;
      }
      for (std::int64_t c = 0; c < p.cols; ++c) {
        const long double h = g(c) * p.w(c);
        input[r * p.cols + c] = rstd * (h - h_average - x_hat(c) * h_x_hat);
        input_scale[r * p.cols + c] =
            rstd * (std::fabs(h) + 1 + std::fabs(x_hat(c)) * (std::fabs(h_x_hat) + 1));
        weight[c] += g(c) * x_hat(c);
        weight_scale[c] += std::fabs(g(c)) * (std::fabs(x_hat(c)) + 0.5L);
        bias[c] += g(c);
        bias_scale[c] += std::fabs(g(c));
      }
    }
  }
};

void expect_near(const Matrix& got, std::int64_t r, std::int64_t cols, const long double* expected,
                 const long double* scale, Dtype arithmetic, const char* name) {
  for (std::int64_t c = 0; c < cols; ++c) {
    const double allowed =
        0.501 * ulp_of(got.dtype(), expected[c]) + 6 * epsilon_of(arithmetic) * scale[c];
    ASSERT_NEAR(got.get(r, c), static_cast<double>(expected[c]), allowed)
        << name << ", row " << r << " column " << c << " of " << cols;
  }
}

void expect_right(const Problem& p, const Backward& b, const Reference& reference) {
  const Dtype arithmetic = statistic_dtype(p.dtype);
  for (std::int64_t r = 0; r < p.rows; ++r) {
    expect_near(b.grad_input, r, p.cols, &reference.input[r * p.cols],
                &reference.input_scale[r * p.cols], arithmetic, "grad_input");
  }
  expect_near(b.grad_weight, 0, p.cols, reference.weight.data(), reference.weight_scale.data(),
              arithmetic, "grad_weight");
  expect_near(b.grad_bias, 0, p.cols, reference.bias.data(), reference.bias_scale.data(),
              arithmetic, "grad_bias");
  EXPECT_TRUE(b.grad_input.intact() && b.grad_weight.intact() && b.grad_bias.intact());
}

void run(std::int64_t rows, std::int64_t cols, Dtype dtype, Parameters parameters,
         std::int64_t row_stride = -1, std::int64_t offset = 0) {
  Problem p(rows, cols, dtype, parameters, row_stride, offset);
  Forward f(p);
  expect_right(p, Backward(p, f), Reference(p));
}

TEST(CpuBackward, IsRightForEveryDtypeAndWidth) {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t cols : {1,  2,  3,   15,  16,  17,   31,   32,   33,   63,
                                    64, 65, 127, 768, 769, 1000, 1023, 4096, 4097, 65537}) {
      run(cols > 5000 ? 2 : 37, cols, dtype, {true, true, dtype, dtype});
    }
  }
}

TEST(CpuBackward, IsRightForEveryWeightAndBiasDtype) {
  for (const Dtype dtype : {Dtype::float16, Dtype::bfloat16}) {
    for (const Dtype weight : {dtype, Dtype::float32}) {
      for (const Dtype bias : {dtype, Dtype::float32}) {
        for (const std::int64_t cols : {5, 96, 1001, 4113}) {
          run(34, cols, dtype, {true, true, weight, bias});
          run(3, cols, dtype, {false, true, weight, bias});
        }
      }
    }
  }
}

TEST(CpuBackward, ReadsStridedAndMisalignedRowsInPlace) {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t cols : {33, 64, 1000}) {
      for (const std::int64_t offset : {1, 3, 7}) {
        run(33, cols, dtype, {true, true, dtype, dtype}, cols + offset, offset);
      }
    }
  }
}

TEST(CpuBackward, StrideZeroRepeatsOneRowOfGradOutput) {
  for (const Dtype dtype : kDtypes) {
    Problem p(40, 100, dtype);
    Forward f(p);
    expect_right(p, Backward(p, f, cpu::serial_for, {}, 0), Reference(p, true));
  }
}

TEST(CpuBackward, NoRowsGiveZeroParameterGradients) {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t cols : {5, 100, 70000}) {
      Problem p(0, cols, dtype);
      Forward f(p);
      const Backward b(p, f);
      for (std::int64_t c = 0; c < cols; ++c) {
        ASSERT_EQ(b.grad_weight.get(0, c), 0);
        ASSERT_EQ(b.grad_bias.get(0, c), 0);
      }
    }
  }
}

TEST(CpuBackward, ParameterGradientsHaveTheSameBitsOnAnyNumberOfThreads) {
  for (const Dtype dtype : kDtypes) {
    for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{500, 100},
                                     {4200, 33},
                                     {40, 9000},
                                     {35, 66000},
                                     {3, 66000}}) {
      Problem p(rows, cols, dtype);
      Forward f(p);
      const Backward serial(p, f);
      for (const int threads : {1, 2, 3, 7}) {
        const Backward threaded(p, f, on(threads));
        EXPECT_TRUE(same_bits(serial.grad_weight, 0, threaded.grad_weight, 0)) << threads;
        EXPECT_TRUE(same_bits(serial.grad_bias, 0, threaded.grad_bias, 0)) << threads;
        for (std::int64_t r = 0; r < rows; ++r) {
          ASSERT_TRUE(same_bits(serial.grad_input, r, threaded.grad_input, r)) << threads;
        }
      }
    }
  }
}

TEST(CpuBackward, GradInputOfARowDependsOnTheRowAlone) {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t cols : {1, 31, 64, 100, 769, 4097, 70001}) {
      const std::int64_t rows = cols > 5000 ? 3 : 70;
      Problem all(rows, cols, dtype);
      Forward f(all);
      const Backward together(all, f);
      for (std::int64_t r = 0; r < rows; r += rows > 4 ? 23 : 1) {
        Problem alone(1, cols, dtype, all.parameters, cols + 5, r % 5);
        for (std::int64_t c = 0; c < cols; ++c) {
          alone.x.set(0, c, all.x.get(r, c));
          alone.g.set(0, c, all.g.get(r, c));
        }
        Forward single(alone);
        const Backward gradients(alone, single);
        EXPECT_TRUE(same_bits(together.grad_input, r, gradients.grad_input, 0)) << cols;
      }
    }
  }
}

TEST(CpuBackward, SharedColumnsGiveTheBitsOfRowsAlone) {
  // 65 rows of this length are shared out whole, fewer by columns.
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16}) {
    Problem many(65, 65539, dtype);
    Forward many_forward(many);
    const Backward whole(many, many_forward);
    Problem few(2, 65539, dtype);
    Forward few_forward(few);
    const Backward shared(few, few_forward, on(3));
    for (std::int64_t r = 0; r < 2; ++r) {
      EXPECT_TRUE(same_bits(whole.grad_input, r, shared.grad_input, r));
    }
  }
}

TEST(CpuBackward, EveryWantedGradientIsTheSameAloneAndTheOthersAreNotWritten) {
  for (const Dtype dtype : kDtypes) {
    for (const auto& [rows, cols] :
         {std::pair<std::int64_t, std::int64_t>{40, 100}, {3, 5000}, {3, 66000}}) {
      Problem p(rows, cols, dtype);
      Forward f(p);
      const Backward all(p, f);
      const Matrix untouched_input(dtype, rows, cols);
      const Matrix untouched(dtype, 1, cols);
      for (int mask = 0; mask < 7; ++mask) {
        const Wanted wanted{(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
        const Backward some(p, f, on(2), wanted);
        for (std::int64_t r = 0; r < rows; ++r) {
          EXPECT_TRUE(
              same_bits(some.grad_input, r, wanted.input ? all.grad_input : untouched_input, r));
        }
        EXPECT_TRUE(same_bits(some.grad_weight, 0, wanted.weight ? all.grad_weight : untouched, 0));
        EXPECT_TRUE(same_bits(some.grad_bias, 0, wanted.bias ? all.grad_bias : untouched, 0));
      }
    }
  }
}

TEST(CpuBackward, GradientsOfManyRowsKeepTheAccuracyOfFloat32) {
  // In bfloat16 arithmetic, sums of 65 600 ones would stop at 256.
  Problem p(65600, 3, Dtype::bfloat16, {true, true, Dtype::float32, Dtype::float32});
  for (std::int64_t r = 0; r < p.rows; ++r) {
    for (std::int64_t c = 0; c < p.cols; ++c) p.g.set(r, c, 1);
  }
  Forward f(p);
  const Backward b(p, f);
  for (std::int64_t c = 0; c < p.cols; ++c) EXPECT_EQ(b.grad_bias.get(0, c), 65600);
}

TEST(CpuBackward, NanStaysInItsRowOfGradInput) {
  for (const Dtype dtype : kDtypes) {
    Problem p(20, 70, dtype);
    Forward clean_forward(p);
    const Backward clean(p, clean_forward);
    p.x.set(4, 69, std::numeric_limits<double>::quiet_NaN());
    Forward f(p);
    const Backward b(p, f);
    for (std::int64_t r = 0; r < p.rows; ++r) {
      EXPECT_EQ(same_bits(clean.grad_input, r, b.grad_input, r), r != 4);
    }
    for (std::int64_t c = 0; c < p.cols; ++c) EXPECT_TRUE(std::isnan(b.grad_input.get(4, c)));
  }
}

TEST(CpuBackward, NanRowsHaveTheSameBitsAnywhere) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t cols : {70, 300, 1000, 5000, 70000}) {
      Problem p(cols < 70000 ? 41 : 3, cols, dtype);
      Forward f(p);  // of clean rows: a NaN among the statistics would be the same for all
      p.x.set(0, 3, std::copysign(nan, -1));
      p.x.set(0, 69, nan);
      for (std::int64_t r = 0; r < p.rows; ++r) {
        std::memcpy(const_cast<void*>(p.x.row(r)), p.x.row(0), p.x.row_bytes());
        std::memcpy(const_cast<void*>(p.g.row(r)), p.g.row(0), p.g.row_bytes());
      }
      const Backward b(p, f);
      for (std::int64_t r = 1; r < p.rows; ++r) {
        EXPECT_TRUE(same_bits(b.grad_input, 0, b.grad_input, r)) << cols << " " << r;
      }
    }
  }
}

TEST(CpuBackward, NanOfAnyPayloadStaysNan) {
  constexpr std::uint32_t kAllOnes = 0xffffffffu;  // rounded to 16 bits by addition: no NaN
  for (const Dtype dtype : {Dtype::float32, Dtype::float16, Dtype::bfloat16}) {
    for (const std::int64_t cols : {70, 1000, 5000}) {
      Problem p(3, cols, dtype, {true, true, Dtype::float32, Dtype::float32});
      Forward f(p);
      static_cast<std::uint32_t*>(f.mean.data())[0] = kAllOnes;
      static_cast<std::uint32_t*>(f.rstd.data())[1] = kAllOnes;
      const Backward statistics(p, f);
      static_cast<std::uint32_t*>(p.weight.data())[5] = kAllOnes;
      const Backward weight(p, f);
      for (std::int64_t c = 0; c < cols; ++c) {
        EXPECT_TRUE(std::isnan(statistics.grad_input.get(0, c)));
        EXPECT_TRUE(std::isnan(statistics.grad_input.get(1, c)));
        EXPECT_FALSE(std::isnan(statistics.grad_input.get(2, c)));
        EXPECT_TRUE(std::isnan(weight.grad_input.get(2, c)));
      }
    }
  }
}

}  // namespace
}  // namespace simple_layernorm::cpu_test
