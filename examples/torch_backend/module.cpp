// SPDX-License-Identifier: MIT
// The Python module _hfcomm_torch: makes process groups of hfcomm for torch.distributed.

#include <Python.h>
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/torch_backend.hpp>

namespace {

namespace py = pybind11;

/// A backend that leaves its group without Python's lock, which callbacks of its last operations may need.
class python_backend final : public hfcomm::torch_backend {
 public:
  using hfcomm::torch_backend::torch_backend;
  ~python_backend() override {
    if (PyGILState_Check() != 0) {
      const py::gil_scoped_release released;
      close();
    }
  }
  [[nodiscard]] c10::intrusive_ptr<hfcomm::torch_backend_base> split(const c10::intrusive_ptr<::c10d::Store>& store,
                                                                     const std::vector<int>& ranks,
                                                                     const c10::intrusive_ptr<Options>& opts) override {
    return split_as<python_backend>(store, ranks, opts);
  }
};

c10::intrusive_ptr<hfcomm::torch_backend_base> make_backend(const c10::intrusive_ptr<::c10d::Store>& store, int rank,
                                                            int size, std::chrono::milliseconds timeout,
                                                            std::string name) {
  return c10::make_intrusive<python_backend>(
      store, rank, size, hfcomm::torch_backend_options{.timeout = timeout, .name = std::move(name)});
}

}  // namespace

PYBIND11_MODULE(_hfcomm_torch, module) {
  module.doc() = "Process groups of hfcomm for torch.distributed";
  module.def("make_backend", &make_backend, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
             py::arg("name") = "hfcomm", py::call_guard<py::gil_scoped_release>(),
             "Makes this rank's part of a process group; waits for the other ranks.");
}
