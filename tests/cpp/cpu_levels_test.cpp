// The levels beside each other, below the choice of one of them.

#include <gtest/gtest.h>

#include "cpu/kernels.hpp"
#include "cpu_problem.hpp"

namespace simple_layernorm::cpu_test {
namespace {

#if defined(__x86_64__)
TEST(CpuLevels, TheTwoWithFmaGiveTheSameBits) {
  const cpu::Kernels* levels[] = {&cpu::kAvx2Kernels, &cpu::kAvx512Kernels};
  for (const cpu::Kernels* level : levels) {
    if (!cpu::runs_here(*level)) GTEST_SKIP() << "this machine has no " << level->name;
  }
  for (const Dtype dtype : {Dtype::float32, Dtype::float64, Dtype::float16, Dtype::bfloat16}) {
    for (const std::int64_t cols : {1, 33, 1000, 4097, 10000}) {
      Problem p(11, cols, dtype);
      Matrix results[] = {Matrix(dtype, 11, cols), Matrix(dtype, 11, cols)};
      for (int i = 0; i < 2; ++i) {
        LayerNormForward a;
        a.rows = p.rows;
        a.cols = a.row_stride = p.cols;
        a.input = p.x.data();
        a.weight = p.weight.data();
        a.bias = p.bias.data();
        a.output = results[i].data();
        a.input_dtype = a.weight_dtype = a.bias_dtype = dtype;
        levels[i]->forward(a, 0, p.rows);
      }
      for (std::int64_t r = 0; r < p.rows; ++r) {
        ASSERT_EQ(std::memcmp(results[0].row(r), results[1].row(r), results[0].row_bytes()), 0);
      }
    }
  }
}
#endif

TEST(CpuLevels, TheBaselineRunsEverywhere) { EXPECT_TRUE(cpu::runs_here(cpu::kBaselineKernels)); }

}  // namespace
}  // namespace simple_layernorm::cpu_test
