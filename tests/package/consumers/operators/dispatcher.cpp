// Finds the operator in torch's dispatcher, without a header of this library.

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdio>

int main() {
  const auto op = c10::Dispatcher::singleton().findSchema({"simple_layernorm::layer_norm", ""});
  if (!op.has_value()) {
    std::printf("simple_layernorm::layer_norm is not registered\n");
    return 1;
  }
  const at::Tensor x = at::randn({5, 7});
  torch::jit::Stack stack{x, std::vector<std::int64_t>{7}};
  const auto& arguments = op->schema().arguments();
  while (stack.size() < arguments.size()) {
    stack.push_back(arguments[stack.size()].default_value().value());
  }
  op->callBoxed(&stack);
  const double error = (stack[0].toTensor() - at::layer_norm(x, {7})).abs().max().item<double>();
  std::printf("largest difference from torch %.1e\n", error);
  return error < 1e-5 ? 0 : 1;
}
