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
        levels[i]->forward(a, 0, p.rows, false);
      }
      for (std::int64_t r = 0; r < p.rows; ++r) {
        ASSERT_EQ(std::memcmp(results[0].row(r), results[1].row(r), results[0].row_bytes()), 0);
      }
    }
  }
}
#endif

std::vector<const cpu::Kernels*> levels_here() {
  std::vector<const cpu::Kernels*> levels = {&cpu::kBaselineKernels};
#if defined(__x86_64__)
  if (cpu::runs_here(cpu::kAvx2Kernels)) levels.push_back(&cpu::kAvx2Kernels);
  if (cpu::runs_here(cpu::kAvx512Kernels)) levels.push_back(&cpu::kAvx512Kernels);
#endif
  return levels;
}

/// Two results at addresses that are multiples of 64.
struct Pair {
  explicit Pair(std::size_t bytes) : bytes(bytes), memory(2 * bytes + 64) {}
  char* at(int i) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    return reinterpret_cast<char*>((address + 63) / 64 * 64) + i * bytes;
  }
  bool equal() { return std::memcmp(at(0), at(1), bytes) == 0; }

  std::size_t bytes;
  std::vector<char> memory;
};

TEST(CpuLevels, StreamedResultsHaveTheBitsOfOthers) {
  for (const cpu::Kernels* level : levels_here()) {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64, Dtype::float16, Dtype::bfloat16}) {
      for (const std::int64_t cols : {32, 80 * 4, 4096 + 64}) {
        Problem p(11, cols, dtype);
        Forward f(p);
        Pair outputs(11 * cols * size_of(dtype));
        Pair gradients(outputs.bytes);
        Pair sums(cpu::padded_cols(cols) * size_of(statistic_dtype(dtype)));
        for (const bool streamed : {false, true}) {
          LayerNormForward a;
          a.rows = p.rows;
          a.cols = a.row_stride = p.cols;
          a.input = p.x.data();
          a.weight = p.weight.data();
          a.output = outputs.at(streamed);
          a.input_dtype = a.weight_dtype = dtype;
          level->forward(a, 0, p.rows, streamed);
          LayerNormBackward b;
          b.rows = p.rows;
          b.cols = b.row_stride = b.grad_output_row_stride = p.cols;
          b.grad_output = p.g.data();
          b.input = p.x.data();
          b.mean = f.mean.data();
          b.rstd = f.rstd.data();
          b.weight = p.weight.data();
          b.grad_input = gradients.at(streamed);
          b.input_dtype = b.weight_dtype = dtype;
          level->backward(b, 0, p.rows, {sums.at(streamed), nullptr}, streamed);
        }
        EXPECT_TRUE(outputs.equal()) << level->name << ' ' << cols;
        EXPECT_TRUE(gradients.equal()) << level->name << ' ' << cols;
        EXPECT_TRUE(sums.equal()) << level->name << ' ' << cols;
      }
    }
  }
}

TEST(CpuLevels, TheBaselineRunsEverywhere) { EXPECT_TRUE(cpu::runs_here(cpu::kBaselineKernels)); }

}  // namespace
}  // namespace simple_layernorm::cpu_test
