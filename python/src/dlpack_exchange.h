// DLPack's C exchange functions (DLPack 1.3): what a library's tensor type offers so that extensions read and
// make its tensors without going through Python. Declared here after the specification, as in
// attend/tensor/dlpack.h.
#pragma once

#include "attend/tensor/dlpack.h"

namespace attend::python {

extern "C" {
// The attribute __dlpack_c_exchange_api__ of a tensor type: a capsule of this name.
inline constexpr const char* kExchangeCapsule = "dlpack_exchange_api";

struct DlpackExchange {
  dlpack::PackVersion version;
  const void* previous;
  // A new tensor of the prototype's device, dtype and shape.
  int (*allocate)(dlpack::DLTensor* prototype, dlpack::DLManagedTensorVersioned** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*to_managed)(void* py_object, dlpack::DLManagedTensorVersioned** out);
  // Takes over `managed`; a new reference.
  int (*to_python)(dlpack::DLManagedTensorVersioned* managed, void** out);
  // A view that holds while the object does; null: not offered.
  int (*view)(void* py_object, dlpack::DLTensor* out);
  // The library's current stream of a device; null: not offered.
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
};
}

}  // namespace attend::python
