#include "module.h"

#include "attend/base/error.h"
#include "result_tensor.h"

NB_MODULE(_attend, module) {
  namespace nb = nanobind;
  // attend.Error is a RuntimeError, as PyTorch's extensions raise; its first argument is the message, its
  // second the code.
  static nb::object error = nb::exception<attend::Error>(module, "Error", PyExc_RuntimeError);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const attend::Error& e) {
      const nb::object made = error(e.what());
      made.attr("code") = nb::str(attend::to_string(e.code()).data());
      PyErr_SetObject(error.ptr(), made.ptr());
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
  attend::python::bind_library(module);
}
