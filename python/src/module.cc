#include "module.h"

#include <nanobind/stl/string.h>

#include <string>

#include "attend/base/error.h"
#include "tensors/result_tensor.h"

NB_MODULE(_attend, unguarded) {
  namespace nb = nanobind;
  attend::python::Module module(unguarded);
  // attend.Error is a RuntimeError, like exceptions of PyTorch's extensions. Invalid arguments also raise a
  // ValueError, as in FlashInfer.
  static nb::object error = nb::exception<attend::Error>(module, "Error", PyExc_RuntimeError);
  const auto name = nb::cast<std::string>(module.attr("__name__")) + ".InvalidArgument";
  const nb::tuple bases = nb::make_tuple(error, nb::handle(PyExc_ValueError));
  static nb::object invalid_argument = nb::steal(PyErr_NewException(name.c_str(), bases.ptr(), nullptr));
  module.attr("InvalidArgument") = invalid_argument;
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const attend::Error& e) {
      const nb::object& type = e.code() == attend::ErrorCode::kInvalidArgument ? invalid_argument : error;
      const nb::object made = type(e.what());
      made.attr("code") = nb::str(attend::to_string(e.code()).data());
      PyErr_SetObject(type.ptr(), made.ptr());
    }
  });
  attend::python::bind_exported_tensor(module);
  attend::python::bind_attention(module);
  attend::python::bind_store_merge(module);
  attend::python::bind_flash_attention(module);
  attend::python::bind_flash_mla(module);
  attend::python::bind_layers(module);
  attend::python::bind_sampling(module);
  attend::python::bind_selected_rows(module);
  attend::python::bind_engine(module);
  attend::python::bind_embedder(module);
  attend::python::bind_library(module);
}
