#include "result_tensor.h"

#include <array>
#include <string>
#include <vector>

#include "tensor_argument.h"

namespace attend::python {
namespace {

// DLPack's code of the dtypes that results have.
dlpack::DataType dlpack_code(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {dlpack::kFloat, 32, 1};
    case DType::kF16:
      return {dlpack::kFloat, 16, 1};
    case DType::kBF16:
      return {dlpack::kBfloat, 16, 1};
    default:
      fail(ErrorCode::kUnsupported, "result of dtype ", dtype, ": expected float32, float16 or bfloat16");
  }
}

// Keeps what `set_error` is told until the C function has returned: nothing may be thrown through it.
struct AllocationError {
  std::string text;
  static void set(void* context, const char* kind, const char* message) {
    static_cast<AllocationError*>(context)->text = std::string(kind) + ": " + message;
  }
};

nb::tuple tuple_of(std::span<const int64_t> shape) {
  nb::list extents;
  for (int64_t extent : shape) extents.append(extent);
  return nb::tuple(extents);
}

// The module that has from_dlpack for arrays like this one.
nb::object namespace_of(nb::handle like) {
  if (nb::hasattr(like, "__array_namespace__")) return like.attr("__array_namespace__")();
  const std::string module = module_of(like);
  return nb::module_::import_(module.substr(0, module.find('.')).c_str());
}

// torch.empty_like for torch's own tensors; null for all others, subclasses too, whose results would be
// theirs. It takes less of the host's time than the exchange functions' allocate.
nb::handle empty_like_of(nb::handle like) {
  static PyTypeObject* known_type = nullptr;
  static nb::handle known;
  PyTypeObject* const type = Py_TYPE(like.ptr());
  if (type == known_type) return known;
  if (exchange_of(like) == nullptr || module_of(like) != "torch" ||
      nb::cast<std::string>(like.type().attr("__name__")) != "Tensor")
    return {};
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  known_type = type;
  return known = nb::object(nb::module_::import_("torch").attr("empty_like")).release();
}

}  // namespace

ResultTensor ResultTensor::make(nb::handle like, Device device, DType dtype, std::span<const int64_t> shape,
                                nb::handle numpy_dtype) {
  ResultTensor result;
  if (const DlpackExchange* exchange = exchange_of(like)) {
    std::array<int64_t, kMaxRank> extents{};
    std::copy(shape.begin(), shape.end(), extents.begin());
    dlpack::DLTensor prototype{
        .data = nullptr,
        .device = {device.type == DeviceType::kCpu ? dlpack::kCpu : dlpack::kCuda, device.index},
        .ndim = static_cast<int32_t>(shape.size()),
        .dtype = dlpack_code(dtype),
        .shape = extents.data(),
        .strides = nullptr,
        .byte_offset = 0};
    dlpack::DLManagedTensorVersioned* managed = nullptr;
    AllocationError error;
    if (exchange->allocate(&prototype, &managed, &error, AllocationError::set) != 0) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      fail(ErrorCode::kOutOfMemory, "new tensor on ", device, ": ", error.text);
    }
    result.view_ = with_address(view_of(managed->dl_tensor));
    void* object = nullptr;
    if (exchange->to_python(managed, &object) != 0) throw nb::python_error();
    result.object_ = nb::steal(static_cast<PyObject*>(object));
    return result;
  }
  if (numpy_dtype.is_valid()) {
    result.object_ = nb::module_::import_("numpy").attr("empty")(tuple_of(shape), numpy_dtype);
    result.view_ = TensorArgument("result", result.object_, Accepts::kActivations, Access::kWrite).view();
    return result;
  }
  require(device.type == DeviceType::kCpu, "result on ", device, ": expected tensors of torch");
  const Tensor flat = Tensor::empty({TensorView::contiguous(nullptr, dtype, shape).num_elements()}, dtype);
  result.view_ = TensorView::contiguous(flat.view().data, dtype, shape);
  result.storage_ = Tensor(result.view_, flat.storage());
  result.namespace_ = namespace_of(like);
  return result;
}

std::optional<ResultTensor> ResultTensor::quickly_made(nb::handle like, const TensorView& view,
                                                       std::span<const int64_t> shape) {
  if (!std::equal(shape.begin(), shape.end(), view.shape.begin(), view.shape.begin() + view.rank) ||
      !view.is_contiguous())
    return std::nullopt;
  const nb::handle empty_like = empty_like_of(like);
  if (!empty_like.is_valid()) return std::nullopt;
  ResultTensor result;
  result.object_ = empty_like(like);
  dlpack::DLTensor tensor;
  if (exchange_of(result.object_)->view(result.object_.ptr(), &tensor) != 0) throw nb::python_error();
  result.view_ = with_address(view_of(tensor));
  return result;
}

ResultTensor ResultTensor::like(nb::handle like, const TensorView& view, std::span<const int64_t> shape) {
  if (std::optional<ResultTensor> made = quickly_made(like, view, shape)) return *std::move(made);
  return make(like, view.device, view.dtype, shape, is_numpy(like) ? like.attr("dtype") : nb::object());
}

ResultTensor ResultTensor::float32_like(nb::handle like, const TensorView& view,
                                        std::span<const int64_t> shape) {
  return make(like, view.device, DType::kF32, shape, is_numpy(like) ? nb::str("float32") : nb::object());
}

nb::object ResultTensor::take() {
  if (!namespace_.is_valid()) return std::move(object_);
  return namespace_.attr("from_dlpack")(nb::cast(ExportedTensor{*storage_}));
}

DenseLse::DenseLse(nb::handle like, const TensorView& view, int64_t num_reqs, int64_t seqlen_q,
                   int64_t num_q_heads)
    : heads_are_last_(seqlen_q > 1) {
  const auto made = [&](int64_t second, int64_t third) {
    return ResultTensor::float32_like(like, view, std::array<int64_t, 3>{num_reqs, second, third});
  };
  result_ = heads_are_last_ ? made(seqlen_q, num_q_heads) : made(num_q_heads, seqlen_q);
  tokens_ = TensorView::contiguous(result_.view().data, DType::kF32, {num_reqs * seqlen_q, num_q_heads},
                                   view.device);
}

nb::object DenseLse::take() {
  nb::object taken = result_.take();
  return heads_are_last_ ? nb::object(taken.attr("mT")) : taken;
}

void bind_exported_tensor(nb::module_& module) {
  nb::class_<ExportedTensor>(module, "ExportedTensor", "A result on its way to the caller's library.")
      .def("__dlpack__",
           [](const ExportedTensor& self, nb::kwargs) {
             return nb::steal(PyCapsule_New(to_dlpack(self.tensor), "dltensor", [](PyObject* capsule) {
               // A capsule that nobody consumed; consumers rename it.
               if (!PyCapsule_IsValid(capsule, "dltensor")) return;
               auto* managed =
                   static_cast<dlpack::DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
               managed->deleter(managed);
             }));
           })
      .def("__dlpack_device__", [](const ExportedTensor&) { return nb::make_tuple(int{dlpack::kCpu}, 0); });
}

}  // namespace attend::python
