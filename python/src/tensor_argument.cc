#include "tensor_argument.h"

#include <string>

namespace attend::python {
namespace {

std::string described_type(nb::handle object) { return nb::cast<std::string>(nb::inst_name(object)); }

struct ForeignDtype {
  std::string_view name;  // numpy's
  DType dtype;
  const char* bits;  // a dtype of numpy's own and attend's of that size
};
// Dtypes that numpy knows from ml_dtypes only and cannot export.
constexpr ForeignDtype kForeignDtypes[] = {{"bfloat16", DType::kBF16, "float16"},
                                           {"float8_e4m3fn", DType::kF8E4M3, "uint8"},
                                           {"float8_e5m2", DType::kF8E5M2, "uint8"}};

const ForeignDtype* foreign_dtype(nb::handle array) {
  if (!is_numpy(array)) return nullptr;
  const auto name = nb::cast<std::string>(array.attr("dtype").attr("name"));
  for (const ForeignDtype& foreign : kForeignDtypes)
    if (foreign.name == name) return &foreign;
  return nullptr;
}

// The object's DLPack capsule: versioned where the library knows of versions.
nb::object dlpack_capsule(nb::handle object) {
  try {
    return object.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 1));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    return object.attr("__dlpack__")();
  }
}

// What view_of refuses, under the argument's name.
TensorView named_view(std::string_view name, const dlpack::DLTensor& tensor) {
  try {
    return view_of(tensor);
  } catch (const Error& error) {
    fail(error.code(), name, ": ", error.what());
  }
}

}  // namespace

std::string module_of(nb::handle object) { return nb::cast<std::string>(object.type().attr("__module__")); }

bool is_numpy(nb::handle object) { return exchange_of(object) == nullptr && module_of(object) == "numpy"; }

const DlpackExchange* exchange_of(nb::handle object) {
  // Looked up once per type: tensors come by thousands a second.
  static PyTypeObject* known_type = nullptr;
  static const DlpackExchange* known = nullptr;
  PyTypeObject* const type = Py_TYPE(object.ptr());
  if (type == known_type) return known;
  const nb::object capsule =
      nb::getattr(nb::handle(reinterpret_cast<PyObject*>(type)), "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), kExchangeCapsule)) return nullptr;
  const auto* exchange =
      static_cast<const DlpackExchange*>(PyCapsule_GetPointer(capsule.ptr(), kExchangeCapsule));
  if (exchange->version.major != 1 || exchange->view == nullptr) return nullptr;
  Py_INCREF(type);
  Py_XDECREF(known_type);
  known_type = type;
  return known = exchange;
}

TensorArgument::TensorArgument(std::string_view name, nb::handle object, Access access) {
  if (object.is_none()) return;
  given_ = true;
  if (const DlpackExchange* exchange = exchange_of(object)) {
    dlpack::DLTensor tensor;
    if (exchange->view(object.ptr(), &tensor) != 0) throw nb::python_error();
    view_ = named_view(name, tensor);
    return;
  }
  read_capsule(name, object, access);
}

void TensorArgument::read_capsule(std::string_view name, nb::handle object, Access access) {
  if (!nb::hasattr(object, "__dlpack__"))
    fail(ErrorCode::kInvalidArgument, name, ": ", described_type(object),
         ": expected a tensor (of torch, numpy, jax, or whatever has __dlpack__)");
  if (access == Access::kWrite && module_of(object).starts_with("jax"))
    fail(ErrorCode::kInvalidArgument, name, ": ", described_type(object),
         " is immutable: expected a tensor that can be written");
  const ForeignDtype* foreign = foreign_dtype(object);
  capsule_ = dlpack_capsule(foreign == nullptr ? nb::borrow(object) : object.attr("view")(foreign->bits));
  if (PyCapsule_IsValid(capsule_.ptr(), "dltensor_versioned")) {
    const auto* managed = static_cast<const dlpack::DLManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule_.ptr(), "dltensor_versioned"));
    require(access == Access::kRead || (managed->flags & dlpack::kFlagReadOnly) == 0, name,
            ": read-only: expected a tensor that can be written");
    view_ = named_view(name, managed->dl_tensor);
  } else {
    const auto* managed =
        static_cast<const dlpack::DLManagedTensor*>(PyCapsule_GetPointer(capsule_.ptr(), "dltensor"));
    if (managed == nullptr) throw nb::python_error();
    view_ = named_view(name, managed->dl_tensor);
  }
  if (foreign != nullptr) view_.dtype = foreign->dtype;
}

View<const int32_t> int32_vector(std::string_view name, const TensorArgument& tensor, Device device) {
  if (!tensor.given()) return {};
  const TensorView& view = tensor.view();
  require(view.rank == 1 && view.dtype == DType::kI32 && view.is_contiguous(), name, " ", view,
          ": expected a contiguous int32 vector");
  require(view.device == device, name, " ", view, ": expected on ", device);
  return {static_cast<const int32_t*>(view.data), static_cast<size_t>(view.shape[0])};
}

Stream stream_of(nb::handle object, Device device) {
  if (device.type == DeviceType::kCpu) return {device, nullptr};
  const DlpackExchange* exchange = exchange_of(object);
  if (exchange == nullptr || exchange->current_stream == nullptr)
    fail(ErrorCode::kUnsupported, described_type(object), " on ", device,
         ": GPU tensors are taken from libraries that tell their stream by DLPack's C exchange functions "
         "(PyTorch since 2.10)");
  Stream stream{device, nullptr};
  if (exchange->current_stream(dlpack::kCuda, device.index, &stream.handle) != 0) throw nb::python_error();
  return stream;
}

}  // namespace attend::python
