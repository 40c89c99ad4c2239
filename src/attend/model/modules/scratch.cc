#include "attend/base/error.h"
#include "attend/model/modules/module.h"
#include "attend/tensor/arena.h"

namespace attend {

size_t Scratch::num_bytes(std::span<const int64_t> widths, int64_t num_tokens, DType dtype) {
  size_t bytes = 0;
  for (const int64_t width : widths)
    bytes += Arena::padded_bytes(static_cast<size_t>(num_tokens * width) * size_of(dtype));
  return bytes;
}

TensorView Scratch::take(int64_t width) {
  const TensorView view = TensorView::contiguous(static_cast<std::byte*>(memory_.data) + used_, dtype_,
                                                 {num_tokens_, width}, memory_.device);
  used_ += static_cast<int64_t>(Arena::padded_bytes(view.num_bytes()));
  ensure(used_ <= static_cast<int64_t>(memory_.num_bytes()), "a module that takes more scratch than it said");
  return view;
}

}  // namespace attend
