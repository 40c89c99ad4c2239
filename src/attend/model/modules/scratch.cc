#include "attend/base/error.h"
#include "attend/model/modules/module.h"
#include "attend/tensor/arena.h"

namespace attend {

TensorView Scratch::take(DType dtype, int64_t num_rows, int64_t width) {
  const TensorView view = TensorView::contiguous(static_cast<std::byte*>(memory_.data) + used_, dtype,
                                                 {num_rows, width}, memory_.device);
  used_ += static_cast<int64_t>(Arena::padded_bytes(view.num_bytes()));
  ensure(used_ <= static_cast<int64_t>(memory_.num_bytes()), "a module that takes more scratch than it said");
  return view;
}

}  // namespace attend
