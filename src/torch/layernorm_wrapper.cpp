// The compiled module simple_layernorm._C: what Python calls without a detour through torch.ops.

#define FMT_HEADER_ONLY  // torch's headers bring fmt, its libraries do not export it

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/utils/wrap_outputs.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_arg_parser.h>
#include <torch/python.h>

#include "simple_layernorm/cpu.hpp"
#include "simple_layernorm/gpu.hpp"
#include "simple_layernorm/torch/layer_norm.hpp"

namespace py = pybind11;
using namespace simple_layernorm;

namespace {

/// torch's own argument parser, so that every argument that torch.nn.functional.layer_norm takes is
/// taken, and every other refused with the same error; it also costs a third of pybind11's casts.
PyObject* layer_norm(PyObject*, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  if (torch::jit::tracer::isTracing()) {  // only torch.ops writes calls into its graph
    return py::module_::import("torch")
        .attr("ops")
        .attr("simple_layernorm")
        .attr("layer_norm")(*py::reinterpret_borrow<py::args>(args),
                            **(kwargs ? py::reinterpret_borrow<py::dict>(kwargs) : py::dict()))
        .release()
        .ptr();
  }
  static torch::PythonArgParser parser(
      {"layer_norm(Tensor input, SymIntArrayRef normalized_shape, Tensor? weight=None, "
       "Tensor? bias=None, double eps=1e-05)"});
  torch::ParsedArgs<5> parsed;
  torch::PythonArgs call = parser.parse(args, kwargs, parsed);
  if (call.has_torch_function()) {
    static const auto function = new py::object(  // never freed: Python is gone by then
        py::module_::import("simple_layernorm").attr("layer_norm"));
    return torch::handle_torch_function_no_python_arg_parser(
        call.overloaded_args, args, kwargs, "layer_norm", function->ptr(), "simple_layernorm");
  }
  const at::Tensor input = call.tensor(0);
  const auto normalized_shape = call.symintlist(1);
  const auto weight = call.optionalTensor(2);
  const auto bias = call.optionalTensor(3);
  const double eps = call.toDouble(4);
  at::Tensor output;
  {
    const py::gil_scoped_release without_gil;
    output = torch_ops::layer_norm(input, normalized_shape, weight, bias, eps);
  }
  return THPVariable_Wrap(std::move(output));
  END_HANDLE_TH_ERRORS
}

PyMethodDef kLayerNorm = {
    "layer_norm", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(layer_norm)),
    METH_VARARGS | METH_KEYWORDS,
    "layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05) -> Tensor"};

/// The seed's function: every row of the last dimension, without weight and bias.
at::Tensor layernorm_forward(const at::Tensor& x, double eps) {
  TORCH_CHECK(x.dim() >= 1,
              "layernorm_forward: expected x of at least one dimension, but got none");
  const c10::SymInt cols = x.sym_sizes().back();
  return torch_ops::layer_norm(x, {cols}, {}, {}, eps);
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  PyModule_AddObject(m.ptr(), "layer_norm",
                     PyCFunction_NewEx(&kLayerNorm, nullptr, m.attr("__name__").ptr()));
  m.def("layernorm_forward", torch::wrap_pybind_function(layernorm_forward), py::arg("x"),
        py::arg("eps") = 1e-5);
  m.def("cpu_level", &cpu::level);
  m.def("gpu_build", [] {
    const gpu::Build build = gpu::build();
    return std::make_pair(build.language, build.architectures);
  });
}
