#include "tensors/result_tensor.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tensors/tensor_argument.h"

namespace attend::python {
namespace {

// Returns DLPack's code of a result's dtype.
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

// Stores the error of `set_error` until the C function has returned, since exceptions must not pass through
// it.
struct AllocationError {
  std::string text;
  static void set(void* context, const char* kind, const char* message) {
    static_cast<AllocationError*>(context)->text = std::string(kind) + ": " + message;
  }
};

nb::tuple to_tuple(std::span<const int64_t> shape) {
  nb::list extents;
  for (int64_t extent : shape) extents.append(extent);
  return nb::tuple(extents);
}

// Returns the module that has from_dlpack for arrays like this one.
nb::object find_namespace(nb::handle like) {
  if (nb::hasattr(like, "__array_namespace__")) return like.attr("__array_namespace__")();
  const std::string module = module_name(like);
  return nb::module_::import_(module.substr(0, module.find('.')).c_str());
}

// Allocates a tensor with the functions' library.
OwnedDlpack allocated(const DlpackExchange& exchange, Device device, DType dtype,
                      std::span<const int64_t> shape) {
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
  if (exchange.allocate(&prototype, &managed, &error, AllocationError::set) != 0) {
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    fail(ErrorCode::kOutOfMemory, "new tensor on ", device, ": ", error.text);
  }
  return OwnedDlpack(managed);
}

// Tensor that is part of an allocation, as passed to a library.
struct Part {
  dlpack::DLManagedTensorVersioned managed;
  std::array<int64_t, kMaxRank> shape, strides;
  std::shared_ptr<dlpack::DLManagedTensorVersioned> whole;

  static OwnedDlpack made(const std::shared_ptr<dlpack::DLManagedTensorVersioned>& whole,
                          const TensorView& view) {
    auto* part = new Part{.managed = *whole, .shape = view.shape, .strides = view.strides, .whole = whole};
    part->managed.manager_ctx = part;
    part->managed.deleter = [](dlpack::DLManagedTensorVersioned* self) {
      delete static_cast<Part*>(self->manager_ctx);
    };
    dlpack::DLTensor& tensor = part->managed.dl_tensor;
    tensor.data = view.data;
    tensor.byte_offset = 0;
    tensor.ndim = view.rank;
    tensor.dtype = dlpack_code(view.dtype);
    tensor.shape = part->shape.data();
    tensor.strides = part->strides.data();
    return OwnedDlpack(&part->managed);
  }
};

// Returns torch.empty_like for torch.Tensor itself, and null for other types, including subclasses, whose
// results would have their type. It needs less host time than the exchange functions' allocate.
nb::handle find_empty_like(nb::handle like) {
  static PyTypeObject* known_type = nullptr;
  static nb::handle known;
  PyTypeObject* const type = Py_TYPE(like.ptr());
  if (type == known_type) return known;
  if (find_exchange(like) == nullptr || module_name(like) != "torch" ||
      nb::cast<std::string>(like.type().attr("__name__")) != "Tensor")
    return {};
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  known_type = type;
  return known = nb::object(nb::module_::import_("torch").attr("empty_like")).release();
}

}  // namespace

ResultTensor ResultTensor::taken(const DlpackExchange& exchange, OwnedDlpack managed) {
  ResultTensor result;
  result.view_ = with_address(to_view(managed->dl_tensor));
  void* object = nullptr;
  // The library owns it from here, also if the call fails.
  if (exchange.to_python(managed.release(), &object) != 0) {
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    fail(ErrorCode::kInternal,
         "the library of the queries did not import a result, without an error message");
  }
  result.object_ = nb::steal(static_cast<PyObject*>(object));
  return result;
}

ResultTensor ResultTensor::make(nb::handle like, Device device, DType dtype, std::span<const int64_t> shape,
                                nb::handle numpy_dtype) {
  ResultTensor result;
  if (const DlpackExchange* exchange = find_exchange(like))
    return taken(*exchange, allocated(*exchange, device, dtype, shape));
  if (numpy_dtype.is_valid()) {
    result.object_ = nb::module_::import_("numpy").attr("empty")(to_tuple(shape), numpy_dtype);
    result.view_ = TensorArgument("result", result.object_, Accepts::kActivations, Access::kWrite).view();
    return result;
  }
  require(device.type == DeviceType::kCpu, "result on ", device, ": expected tensors of torch");
  const Tensor flat = Tensor::empty({TensorView::contiguous(nullptr, dtype, shape).num_elements()}, dtype);
  result.view_ = TensorView::contiguous(flat.view().data, dtype, shape);
  result.storage_ = Tensor(result.view_, flat.storage());
  result.namespace_ = find_namespace(like);
  return result;
}

std::optional<ResultTensor> ResultTensor::quickly_made(nb::handle like, const TensorView& view,
                                                       std::span<const int64_t> shape) {
  if (!std::equal(shape.begin(), shape.end(), view.shape.begin(), view.shape.begin() + view.rank) ||
      !view.is_contiguous())
    return std::nullopt;
  const nb::handle empty_like = find_empty_like(like);
  if (!empty_like.is_valid()) return std::nullopt;
  ResultTensor result;
  result.object_ = empty_like(like);
  dlpack::DLTensor tensor;
  if (find_exchange(result.object_)->view(result.object_.ptr(), &tensor) != 0) throw nb::python_error();
  result.view_ = with_address(to_view(tensor));
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

std::pair<ResultTensor, ResultTensor> ResultTensor::like_and_float32(nb::handle like, const TensorView& view,
                                                                     std::span<const int64_t> shape,
                                                                     std::span<const int64_t> float32_shape) {
  TensorView first = TensorView::contiguous(nullptr, view.dtype, shape),
             second = TensorView::contiguous(nullptr, DType::kF32, float32_shape);
  const DlpackExchange* exchange = find_exchange(like);
  if (exchange == nullptr || first.num_elements() == 0 || second.num_elements() == 0)
    return {ResultTensor::like(like, view, shape), float32_like(like, view, float32_shape)};
  // The second tensor starts at a multiple of the alignment that kernels read rows with.
  constexpr size_t kAlignment = 256;
  const size_t second_at = (first.num_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  const auto num_floats = static_cast<int64_t>((second_at + second.num_bytes()) / sizeof(float));
  const std::shared_ptr<dlpack::DLManagedTensorVersioned> whole =
      allocated(*exchange, view.device, DType::kF32, std::array<int64_t, 1>{num_floats});
  const dlpack::DLTensor& memory = whole->dl_tensor;
  auto* const begin = static_cast<std::byte*>(memory.data) + memory.byte_offset;
  first.data = begin;
  second.data = begin + second_at;
  OwnedDlpack first_part = Part::made(whole, first), second_part = Part::made(whole, second);
  return {taken(*exchange, std::move(first_part)), taken(*exchange, std::move(second_part))};
}

nb::object ResultTensor::take() {
  if (!namespace_.is_valid()) return std::move(object_);
  return namespace_.attr("from_dlpack")(nb::cast(ExportedTensor{*storage_}));
}

std::array<int64_t, 3> DenseLse::dense_shape(int64_t num_reqs, int64_t seqlen_q, int64_t num_q_heads) {
  if (seqlen_q > 1) return {num_reqs, seqlen_q, num_q_heads};
  return {num_reqs, num_q_heads, seqlen_q};
}

DenseLse::DenseLse(nb::handle like, const TensorView& view, int64_t num_reqs, int64_t seqlen_q,
                   int64_t num_q_heads)
    : DenseLse(ResultTensor::float32_like(like, view, dense_shape(num_reqs, seqlen_q, num_q_heads)),
               seqlen_q) {}

DenseLse::DenseLse(ResultTensor made, int64_t seqlen_q)
    : result_(std::move(made)), heads_are_last_(seqlen_q > 1) {
  const TensorView& view = result_.view();
  const int64_t num_reqs = view.shape[0], num_q_heads = view.shape[heads_are_last_ ? 2 : 1];
  tokens_ = TensorView::contiguous(view.data, DType::kF32, {num_reqs * seqlen_q, num_q_heads}, view.device);
}

nb::object DenseLse::take() {
  nb::object taken = result_.take();
  return heads_are_last_ ? nb::object(taken.attr("mT")) : taken;
}

void bind_exported_tensor(Module& module) {
  Class<ExportedTensor>(module, "ExportedTensor", "A result that the caller's library imports.")
      .def("__dlpack__",
           [](const ExportedTensor& self, nb::kwargs) {
             return nb::steal(PyCapsule_New(to_dlpack(self.tensor), "dltensor", [](PyObject* capsule) {
               // The capsule was not consumed; consumers rename it.
               if (!PyCapsule_IsValid(capsule, "dltensor")) return;
               auto* managed =
                   static_cast<dlpack::DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
               managed->deleter(managed);
             }));
           })
      .def("__dlpack_device__", [](const ExportedTensor&) { return nb::make_tuple(int{dlpack::kCpu}, 0); });
}

}  // namespace attend::python
