// Calls the operator as a C++ function and compares it with torch's.

#include <ATen/ATen.h>

#include <cstdio>

#include "simple_layernorm/torch/layer_norm.hpp"

int main() {
  const at::Tensor x = at::randn({5, 7}), weight = at::randn({7}), bias = at::randn({7});
  const at::Tensor ours = simple_layernorm::torch_ops::layer_norm(x, {7}, weight, bias);
  const double error = (ours - at::layer_norm(x, {7}, weight, bias)).abs().max().item<double>();
  std::printf("largest difference from torch %.1e\n", error);
  return error < 1e-5 ? 0 : 1;
}
