#include "attend/tensor/communicator.h"

#include "attend/base/error.h"

namespace attend {

void Communicator::all_reduce_add(const TensorView&, const TensorView&, const DeferredScale&,
                                  Stream& stream) {
  fail(ErrorCode::kUnsupported, "all_reduce_add on ", stream.device, ": expected a GPU");
}

}  // namespace attend
