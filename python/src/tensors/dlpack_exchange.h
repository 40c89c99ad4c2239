// DLPack's C exchange functions (DLPack 1.3), with which a library's tensor type lets extensions read and
// create its tensors without Python calls. Declared here from the specification, as in
// attend/tensor/dlpack.h.
#pragma once

#include "attend/tensor/dlpack.h"

namespace attend::python {

extern "C" {
// Attribute __dlpack_c_exchange_api__ of a tensor type: a capsule with this name.
inline constexpr const char* kExchangeCapsule = "dlpack_exchange_api";

struct DlpackExchange {
  dlpack::PackVersion version;
  const void* previous;
  // Allocates a tensor with the prototype's device, dtype and shape.
  int (*allocate)(dlpack::DLTensor* prototype, dlpack::DLManagedTensorVersioned** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*to_managed)(void* py_object, dlpack::DLManagedTensorVersioned** out);
  // Takes ownership of `managed` and returns a new reference.
  int (*to_python)(dlpack::DLManagedTensorVersioned* managed, void** out);
  // Returns a view that is valid during the object's lifetime; null: not supported.
  int (*view)(void* py_object, dlpack::DLTensor* out);
  // Returns the library's current stream of a device; null: not supported.
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
};
}

}  // namespace attend::python
