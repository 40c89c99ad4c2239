// DLPack: exchanges tensors with other libraries without a copy. The C structs follow the DLPack
// specification (v1.1); they are declared here so that its header is not needed.
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
// Form before DLPack 1.0: capsule "dltensor".
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct PackVersion {
  uint32_t major;
  uint32_t minor;
};
// Form since DLPack 1.0: capsule "dltensor_versioned".
struct DLManagedTensorVersioned {
  PackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};
}

}  // namespace dlpack

// Returns a view of a DLTensor's elements. Throws Error(kUnsupported) for an unsupported device, dtype, lane
// count or rank, with its value.
TensorView to_view(const dlpack::DLTensor& tensor);

// Takes ownership: the last Tensor that shares the storage calls the deleter. On an error the caller keeps
// it.
Tensor from_dlpack(dlpack::DLManagedTensor* managed);
// Also throws Error(kUnsupported) for a major version other than 1, and for read-only memory.
Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed);

// The consumer must call the deleter of the result; the storage lives until then.
dlpack::DLManagedTensor* to_dlpack(const Tensor& tensor);
dlpack::DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor);

}  // namespace attend
#pragma GCC visibility pop
