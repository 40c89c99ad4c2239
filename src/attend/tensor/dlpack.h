// DLPack: tensors in and out of other libraries without a copy.
// The C structs follow the DLPack specification (v1.1); they are declared here so that no header of it is
// needed.
#pragma once

#include <cstdint>

#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

namespace dlpack {

enum DeviceTypeCode : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
enum TypeCode : uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kFloat8E4M3fn = 10,
  kFloat8E5M2 = 12
};
inline constexpr uint64_t kFlagReadOnly = 1;

extern "C" {
struct Device {
  int32_t device_type;
  int32_t device_id;
};
struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major contiguous
  uint64_t byte_offset;
};
// Before DLPack 1.0: capsule "dltensor".
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct PackVersion {
  uint32_t major;
  uint32_t minor;
};
// Since DLPack 1.0: capsule "dltensor_versioned".
struct DLManagedTensorVersioned {
  PackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};
}

}  // namespace dlpack

// A view of a DLTensor's elements. Throws Error(kUnsupported) for a device, dtype, lane count or rank that
// attend has no word for, naming it.
TensorView view_of(const dlpack::DLTensor& tensor);

// Takes ownership: the last Tensor that shares the storage calls the deleter. On an error nothing is taken.
Tensor from_dlpack(dlpack::DLManagedTensor* managed);
// Also refuses (kUnsupported) a major version other than 1, and memory flagged read-only.
Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed);

// The consumer calls the deleter of what is returned; until then the storage lives.
dlpack::DLManagedTensor* to_dlpack(const Tensor& tensor);
dlpack::DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor);

}  // namespace attend
#pragma GCC visibility pop
