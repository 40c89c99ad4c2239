#include "attend/tensor/dlpack.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string>

namespace attend {
namespace {

struct Code {
  DType dtype;
  uint8_t code, bits;
};
// The most common dtypes are first, since a program may convert thousands of tensors per second.
constexpr Code kCodes[] = {{DType::kBF16, dlpack::kBfloat, 16},
                           {DType::kI32, dlpack::kInt, 32},
                           {DType::kF32, dlpack::kFloat, 32},
                           {DType::kF16, dlpack::kFloat, 16},
                           {DType::kF8E4M3, dlpack::kFloat8E4M3fn, 8},
                           {DType::kF8E5M2, dlpack::kFloat8E5M2, 8},
                           {DType::kI64, dlpack::kInt, 64},
                           {DType::kU8, dlpack::kUInt, 8},
                           {DType::kU64, dlpack::kUInt, 64},
                           {DType::kI8, dlpack::kInt, 8}};

dlpack::DataType to_code(DType dtype) {
  for (const Code& code : kCodes)
    if (code.dtype == dtype) return {code.code, code.bits, 1};
  fail(ErrorCode::kInternal, "DLPack: dtype ", dtype);
}

DType from_code(dlpack::DataType type) {
  for (const Code& code : kCodes)
    if (code.code == type.code && code.bits == type.bits && type.lanes == 1) return code.dtype;
  constexpr uint8_t kBool = 6;
  constexpr std::array kNames = {"int", "uint", "float", "opaque handle", "bfloat", "complex", "bool"};
  std::ostringstream name;
  if (type.code == kBool)
    name << kNames[kBool];
  else if (type.code < kNames.size())
    name << kNames[type.code] << int{type.bits};
  else
    name << "code " << int{type.code} << " of " << int{type.bits} << " bits";
  if (type.lanes != 1) name << " in vectors of " << type.lanes;
  std::string accepted;
  for (const Code& code : kCodes)
    accepted += (accepted.empty() ? "" : ", ") + std::string(to_string(code.dtype));
  fail(ErrorCode::kUnsupported, "DLPack dtype ", name.str(), ": expected ", accepted);
}

Device from_device(dlpack::Device device) {
  if (device.device_type == dlpack::kCpu || device.device_type == dlpack::kCudaHost)
    return {DeviceType::kCpu, 0};
  if (device.device_type == dlpack::kCuda || device.device_type == dlpack::kCudaManaged)
    return {DeviceType::kCuda, device.device_id};
  fail(ErrorCode::kUnsupported, "DLPack device type ", device.device_type,
       ": expected memory of the CPU (1), CUDA (2), CUDA host (3) or CUDA managed (13)");
}

// Data that an exported tensor keeps alive for the consumer: storage, shape and strides.
struct Exported {
  std::shared_ptr<void> storage;
  std::array<int64_t, kMaxRank> shape;
  std::array<int64_t, kMaxRank> strides;
};

template <class Managed>
Managed* export_tensor(const Tensor& tensor) {
  const TensorView& view = tensor.view();
  auto* held = new Exported{tensor.storage(), view.shape, view.strides};
  auto* managed = new Managed{};
  managed->dl_tensor = {
      .data = view.data,
      .device = {view.device.type == DeviceType::kCpu ? dlpack::kCpu : dlpack::kCuda, view.device.index},
      .ndim = view.rank,
      .dtype = to_code(view.dtype),
      .shape = held->shape.data(),
      .strides = held->strides.data(),
      .byte_offset = 0,
  };
  managed->manager_ctx = held;
  managed->deleter = [](Managed* self) {
    delete static_cast<Exported*>(self->manager_ctx);
    delete self;
  };
  return managed;
}

template <class Managed>
Tensor import_tensor(Managed* managed) {
  const TensorView view = to_view(managed->dl_tensor);
  return Tensor(view, std::shared_ptr<void>(managed, [](void* pointer) {
                  auto* held = static_cast<Managed*>(pointer);
                  if (held->deleter != nullptr) held->deleter(held);
                }));
}

}  // namespace

TensorView to_view(const dlpack::DLTensor& tensor) {
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank)
    fail(ErrorCode::kUnsupported, "DLPack tensor of rank ", tensor.ndim, ": at most ", kMaxRank);
  TensorView view = TensorView::contiguous(
      nullptr, from_code(tensor.dtype),
      std::span<const int64_t>(tensor.shape, static_cast<size_t>(tensor.ndim)), from_device(tensor.device));
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  if (tensor.strides != nullptr) std::copy_n(tensor.strides, tensor.ndim, view.strides.begin());
  return view;
}

Tensor from_dlpack(dlpack::DLManagedTensor* managed) { return import_tensor(managed); }

Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed) {
  if (managed->version.major != 1)
    fail(ErrorCode::kUnsupported, "DLPack version ", managed->version.major, ".", managed->version.minor,
         ": expected 1.x");
  if (managed->flags & dlpack::kFlagReadOnly)
    fail(ErrorCode::kUnsupported, "DLPack tensor is read-only: attend requires writable memory");
  return import_tensor(managed);
}

dlpack::DLManagedTensor* to_dlpack(const Tensor& tensor) {
  return export_tensor<dlpack::DLManagedTensor>(tensor);
}

dlpack::DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor) {
  auto* managed = export_tensor<dlpack::DLManagedTensorVersioned>(tensor);
  managed->version = {1, 1};
  managed->flags = 0;
  return managed;
}

}  // namespace attend
