// The compiled module simple_layernorm._C: what Python calls without a detour through torch.ops.

#include <torch/csrc/utils/pybind.h>
#include <torch/python.h>

#include "simple_layernorm/cpu.hpp"
#include "simple_layernorm/gpu.hpp"
#include "simple_layernorm/torch/layer_norm.hpp"

namespace py = pybind11;
using namespace simple_layernorm;

namespace {

at::Tensor layer_norm(const at::Tensor& input, std::vector<std::int64_t> normalized_shape,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps) {
  return torch_ops::layer_norm(input, c10::fromIntArrayRefSlow(normalized_shape), weight, bias, eps);
}

/// The seed's function: every row of the last dimension, without weight and bias.
at::Tensor layernorm_forward(const at::Tensor& x, double eps) {
  TORCH_CHECK(x.dim() >= 1, "layernorm_forward: expected x of at least one dimension, but got none");
  const c10::SymInt cols = x.sym_sizes().back();
  return torch_ops::layer_norm(x, {cols}, {}, {}, eps);
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.def("layer_norm", torch::wrap_pybind_function(layer_norm), py::arg("input"),
        py::arg("normalized_shape"), py::arg("weight") = py::none(), py::arg("bias") = py::none(),
        py::arg("eps") = 1e-5);
  m.def("layernorm_forward", torch::wrap_pybind_function(layernorm_forward), py::arg("x"),
        py::arg("eps") = 1e-5);
  m.def("cpu_level", &cpu::level);
  m.def("gpu_device_architecture", &gpu::device_architecture);
  m.def("gpu_build", [] {
    const gpu::Build build = gpu::build();
    return std::make_pair(build.language, build.architectures);
  });
}
