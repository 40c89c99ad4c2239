#include "attend/kv/tier/page_bytes.h"

#include "attend/base/error.h"

namespace attend {

void PageBytes::add(const TensorView& storage) {
  const int64_t elements = storage.num_elements() / storage.shape[0];
  ensure(storage.strides[0] == elements, "page data of ", storage, ": the elements of an index have gaps");
  const int64_t num_bytes = elements * static_cast<int64_t>(size_of(storage.dtype));
  add({.cache = static_cast<std::byte*>(storage.data), .stride = num_bytes, .num_bytes = num_bytes},
      storage.device);
}

void PageBytes::add(const PageBytes& others) {
  for (const kernels::PagePart& part : others.parts_) add(part, others.device_);
}

void PageBytes::add(kernels::PagePart part, Device device) {
  ensure(parts_.empty() || device == device_, "page data on ", device, " after others on ", device_);
  device_ = device;
  part.offset = static_cast<int64_t>(num_bytes_);
  parts_.push_back(part);
  num_bytes_ += static_cast<size_t>(part.num_bytes);
}

}  // namespace attend
