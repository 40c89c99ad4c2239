#include "tensors/tensor_argument.h"

#include <limits>
#include <span>
#include <string>

namespace attend::python {
namespace {

std::string described_type(nb::handle object) { return nb::cast<std::string>(nb::inst_name(object)); }

struct ForeignDtype {
  std::string_view name;  // numpy's name
  DType dtype;
  const char* bits;  // numpy dtype, and attend dtype, with that size
};
// Dtypes that numpy has only through ml_dtypes and cannot export.
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

// Returns the object's DLPack capsule, versioned if the library supports versions.
nb::object dlpack_capsule(nb::handle object) {
  try {
    return object.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 1));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    return object.attr("__dlpack__")();
  }
}

bool may_require_grad(Accepts accepts) {
  return accepts != Accepts::kInt32 && accepts != Accepts::kUint64 && accepts != Accepts::kBytes;
}

// Returns requires_grad of torch tensors, also if gradients are disabled.
bool requires_grad(nb::handle object) {
  // Created once, since it is looked up for every tensor of a call.
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  const nb::object value = nb::steal(PyObject_GetAttr(object.ptr(), name));
  if (!value.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw nb::python_error();
    PyErr_Clear();
    return false;
  }
  if (value.ptr() != Py_True) return false;
  // An attribute with this name of another library does not refer to torch's grad mode.
  const nb::object torch = nb::borrow(PyImport_GetModule(nb::str("torch").ptr()));
  return torch.is_valid() && PyObject_IsInstance(object.ptr(), torch.attr("Tensor").ptr()) == 1;
}

// Throws Error for a tensor that requires grad while torch records operations: the result would count as a
// constant, and its gradient would be silently missing.
void reject_recorded(std::string_view name) {
  if (nb::cast<bool>(nb::module_::import_("torch").attr("is_grad_enabled")()))
    fail(ErrorCode::kUnsupported, name,
         " requires grad: attend computes forward only; call under torch.no_grad()");
}

// Converts a library's export error to Error with the argument's name. Other exceptions, such as
// KeyboardInterrupt, are passed on.
[[noreturn]] void reject_unexportable(std::string_view name, nb::handle object, nb::python_error& error) {
  if (!error.matches(PyExc_BufferError) && !error.matches(PyExc_RuntimeError) &&
      !error.matches(PyExc_ValueError))
    throw error;
  const auto said = nb::cast<std::string>(nb::str(error.value()));
  // First line only: torch appends its source location.
  fail(ErrorCode::kUnsupported, name, ": ", said.substr(0, said.find('\n')), " (", described_type(object),
       "): expected one that can be exported, on the CPU or a GPU");
}

struct NamedDtype {
  std::string_view name;  // name in numpy and torch
  uint8_t code, bits;     // of DLPack
};
constexpr NamedDtype kFloats[] = {{"float32", dlpack::kFloat, 32},
                                  {"float16", dlpack::kFloat, 16},
                                  {"bfloat16", dlpack::kBfloat, 16},
                                  {"float8_e4m3fn", dlpack::kFloat8E4M3fn, 8},
                                  {"float8_e5m2", dlpack::kFloat8E5M2, 8}};
constexpr NamedDtype kInt32Alone[] = {{"int32", dlpack::kInt, 32}};
constexpr NamedDtype kByteDtypes[] = {{"uint8", dlpack::kUInt, 8},
                                      {"float8_e4m3fn", dlpack::kFloat8E4M3fn, 8}};
constexpr NamedDtype kUint64Alone[] = {{"uint64", dlpack::kUInt, 64}};

std::span<const NamedDtype> accepted_dtypes(Accepts accepts) {
  const std::span<const NamedDtype> floats = kFloats;
  switch (accepts) {
    case Accepts::kActivations:
      return floats.first(3);
    case Accepts::kKeys:
      return floats;
    case Accepts::kFloat32:
      return floats.first(1);
    case Accepts::kInt32:
      return kInt32Alone;
    case Accepts::kUint64:
      return kUint64Alone;
    case Accepts::kBytes:
      return kByteDtypes;
  }
  fail(ErrorCode::kInternal, "dtypes that an argument may have");
}

[[noreturn]] void reject_dtype(std::string_view name, std::string_view dtype, Accepts accepts) {
  const std::span<const NamedDtype> dtypes = accepted_dtypes(accepts);
  std::string accepted;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    if (i > 0) accepted += i + 1 == dtypes.size() ? " or " : ", ";
    accepted += dtypes[i].name;
  }
  fail(ErrorCode::kInvalidArgument, name, " of ", dtype, ": expected ", accepted);
}

// Returns a DLPack dtype as libraries write it: "float64", "bool", "int8".
std::string dtype_name(dlpack::DataType type) {
  const std::string bits = std::to_string(type.bits),
                    lanes = type.lanes == 1 ? "" : "x" + std::to_string(type.lanes);
  switch (type.code) {
    case dlpack::kInt:
      return "int" + bits + lanes;
    case dlpack::kUInt:
      return "uint" + bits + lanes;
    case dlpack::kFloat:
      return "float" + bits + lanes;
    case dlpack::kBfloat:
      return "bfloat" + bits + lanes;
    case 5:  // kDLComplex
      return "complex" + bits + lanes;
    case 6:  // kDLBool
      return "bool" + lanes;
    default:
      for (const NamedDtype& dtype : kFloats)
        if (dtype.code == type.code && dtype.bits == type.bits) return std::string(dtype.name) + lanes;
      return "DLPack dtype code " + std::to_string(type.code) + ", " + bits + " bits" + lanes;
  }
}

void require_accepted(std::string_view name, dlpack::DataType type, Accepts accepts) {
  for (const NamedDtype& dtype : accepted_dtypes(accepts))
    if (dtype.code == type.code && dtype.bits == type.bits && type.lanes == 1) return;
  reject_dtype(name, dtype_name(type), accepts);
}

// Checks numpy's name of the dtype, since some dtypes of ml_dtypes cannot be exported.
void require_accepted_numpy_dtype(std::string_view name, nb::handle array, Accepts accepts) {
  const nb::object dtype_object = array.attr("dtype");
  const auto given = nb::cast<std::string>(dtype_object.attr("name"));
  if (!nb::cast<bool>(dtype_object.attr("isnative")))
    reject_dtype(name, given + " in another byte order than the machine's", accepts);
  for (const NamedDtype& dtype : accepted_dtypes(accepts))
    if (dtype.name == given) return;
  reject_dtype(name, given, accepts);
}

// Like to_view(), with errors that name the argument.
TensorView named_view(std::string_view name, const dlpack::DLTensor& tensor) {
  try {
    return with_address(to_view(tensor));
  } catch (const Error& error) {
    fail(error.code(), name, ": ", error.what());
  }
}

}  // namespace

std::string module_name(nb::handle object) { return nb::cast<std::string>(object.type().attr("__module__")); }

bool is_numpy(nb::handle object) {
  return find_exchange(object) == nullptr && module_name(object) == "numpy";
}

const DlpackExchange* find_exchange(nb::handle object) {
  // Cached per type, since a program may pass thousands of tensors per second.
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
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  Py_XDECREF(reinterpret_cast<PyObject*>(known_type));
  known_type = type;
  return known = exchange;
}

TensorArgument::TensorArgument(std::string_view name, nb::handle object, Accepts accepts, Access access) {
  if (object.is_none()) return;
  if (const DlpackExchange* exchange = find_exchange(object)) {
    dlpack::DLTensor tensor;
    if (may_require_grad(accepts) && requires_grad(object)) reject_recorded(name);
    if (exchange->view(object.ptr(), &tensor) != 0) {
      nb::python_error error;
      reject_unexportable(name, object, error);
    }
    require_accepted(name, tensor.dtype, accepts);
    view_ = named_view(name, tensor);
    return;
  }
  read_capsule(name, object, accepts, access);
}

void TensorArgument::read_capsule(std::string_view name, nb::handle object, Accepts accepts, Access access) {
  if (!nb::hasattr(object, "__dlpack__"))
    fail(ErrorCode::kInvalidArgument, name, ": ", described_type(object),
         ": expected a tensor (torch, numpy, jax, or another type with __dlpack__)");
  if (module_name(object).starts_with("numpy.ma"))
    fail(ErrorCode::kInvalidArgument, name, ": ", described_type(object), ": expected an unmasked array");
  if (access == Access::kWrite && module_name(object).starts_with("jax"))
    fail(ErrorCode::kInvalidArgument, name, ": ", described_type(object),
         " is immutable: expected a writable tensor");
  const ForeignDtype* foreign = foreign_dtype(object);
  const bool is_numpy_array = is_numpy(object);
  if (is_numpy_array) require_accepted_numpy_dtype(name, object, accepts);
  const auto view_named = [&](const dlpack::DLTensor& tensor) {
    if (foreign == nullptr) require_accepted(name, tensor.dtype, accepts);
    return named_view(name, tensor);
  };
  nb::object exported = foreign == nullptr ? nb::borrow(object) : object.attr("view")(foreign->bits);
  // Tensor of a torch version without exchange functions, which does not export one that requires grad.
  if (may_require_grad(accepts) && !is_numpy_array && requires_grad(object)) {
    reject_recorded(name);
    exported = object.attr("detach")();
  }
  try {
    capsule_ = dlpack_capsule(exported);
  } catch (nb::python_error& error) {
    reject_unexportable(name, object, error);
  }
  if (PyCapsule_IsValid(capsule_.ptr(), "dltensor_versioned")) {
    const auto* managed = static_cast<const dlpack::DLManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule_.ptr(), "dltensor_versioned"));
    require(access == Access::kRead || (managed->flags & dlpack::kFlagReadOnly) == 0, name,
            ": read-only: expected a writable tensor");
    view_ = view_named(managed->dl_tensor);
  } else {
    const auto* managed =
        static_cast<const dlpack::DLManagedTensor*>(PyCapsule_GetPointer(capsule_.ptr(), "dltensor"));
    if (managed == nullptr) throw nb::python_error();
    view_ = view_named(managed->dl_tensor);
  }
  if (foreign != nullptr) view_->dtype = foreign->dtype;
}

TensorView with_address(TensorView view) {
  static char address[64];
  if (view.num_elements() > 0) return view;
  return TensorView::contiguous(view.data == nullptr ? address : view.data, view.dtype,
                                std::span<const int64_t>(view.shape.data(), static_cast<size_t>(view.rank)),
                                view.device);
}

bool is_number(nb::handle object) {
  if (PyLong_Check(object.ptr())) return !PyBool_Check(object.ptr());
  // Some tensors also support the index protocol.
  return PyIndex_Check(object.ptr()) && find_exchange(object) == nullptr &&
         !nb::hasattr(object, "__dlpack__");
}

// Formatting the value costs more than reading the other numbers of a call, so it is done only for the
// message.
bool bool_argument(std::string_view name, nb::handle value) {
  if (!PyBool_Check(value.ptr()))
    fail(ErrorCode::kInvalidArgument, name, " ", nb::cast<std::string>(nb::repr(value)),
         ": expected True or False");
  return value.ptr() == Py_True;
}

float float_argument(std::string_view name, nb::handle value) {
  float number = 0.0f;
  if (!nb::try_cast(value, number))
    fail(ErrorCode::kInvalidArgument, name, " ", nb::cast<std::string>(nb::repr(value)),
         ": expected a number");
  return number;
}

int int_argument(std::string_view name, nb::handle value) {
  if (is_number(value)) {
    int overflow = 0;
    const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
    if (!index.is_valid()) throw nb::python_error();
    const long number = PyLong_AsLongAndOverflow(index.ptr(), &overflow);
    if (overflow == 0 && number >= std::numeric_limits<int>::min() &&
        number <= std::numeric_limits<int>::max())
      return static_cast<int>(number);
  }
  fail(ErrorCode::kInvalidArgument, name, " ", nb::cast<std::string>(nb::repr(value)),
       ": expected an int of 32 bits");
}

void require_given(std::string_view name, const TensorArgument& tensor) {
  require(tensor.given(), name, " None: expected a tensor");
}

View<const int32_t> int32_vector(std::string_view name, const TensorArgument& tensor, Device device) {
  if (!tensor.given()) return {};
  const TensorView& view = tensor.view();
  require(view.rank == 1 && view.dtype == DType::kI32 && view.is_contiguous(), name, " ", view,
          ": expected a contiguous int32 vector");
  require(view.device == device, name, " ", view, ": expected on ", device);
  return {static_cast<const int32_t*>(view.data), static_cast<size_t>(view.shape[0])};
}

Stream current_stream(nb::handle object, Device device) {
  if (device.type == DeviceType::kCpu) return {device, nullptr};
  const DlpackExchange* exchange = find_exchange(object);
  if (exchange == nullptr || exchange->current_stream == nullptr)
    fail(ErrorCode::kUnsupported, described_type(object), " on ", device,
         ": GPU tensors require a library that reports its stream through DLPack's C exchange functions "
         "(PyTorch since 2.10)");
  Stream stream{device, nullptr};
  if (exchange->current_stream(dlpack::kCuda, device.index, &stream.handle) != 0) throw nb::python_error();
  return stream;
}

}  // namespace attend::python
