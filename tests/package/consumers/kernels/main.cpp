// Normalises one row on the CPU, and reports what the GPU side answers on this machine.

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "simple_layernorm/cpu.hpp"
#include "simple_layernorm/gpu.hpp"

int main() {
  const std::vector<float> x{1, 2, 3, 4};
  std::vector<float> y(x.size());
  simple_layernorm::LayerNormForward call;
  call.rows = 1;
  call.cols = call.row_stride = static_cast<std::int64_t>(x.size());
  call.input = x.data();
  call.output = y.data();
  std::vector<char> workspace(simple_layernorm::cpu::layer_norm_forward_workspace(call) + 64);
  simple_layernorm::cpu::layer_norm_forward(call, workspace.data());

  const double mean = 2.5, rstd = 1 / std::sqrt(1.25 + 1e-5);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::fabs(y[i] - (x[i] - mean) * rstd) > 1e-6) return 1;
  }
  const auto build = simple_layernorm::gpu::build();
  std::printf("cpu %s; gpu %s %s\n", simple_layernorm::cpu::level(), build.language.c_str(),
              build.architectures.c_str());
  try {
    std::printf("device %s\n", simple_layernorm::gpu::device_architecture().c_str());
  } catch (const std::runtime_error& error) {
    std::printf("%s\n", error.what());
  }
}
