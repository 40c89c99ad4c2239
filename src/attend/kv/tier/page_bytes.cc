#include "attend/kv/tier/page_bytes.h"

#include <cstring>

#include "attend/base/error.h"

namespace attend {

void PageBytes::add(const TensorView& storage) {
  ensure(storage.device.type == DeviceType::kCpu, "page data of ", storage, ": expected host memory");
  const int64_t elements = storage.num_elements() / storage.shape[0];
  ensure(storage.strides[0] == elements, "page data of ", storage, ": the elements of an index have gaps");
  const size_t num_bytes = static_cast<size_t>(elements) * size_of(storage.dtype);
  parts_.push_back({.base = static_cast<std::byte*>(storage.data), .num_bytes = num_bytes});
  num_bytes_ += num_bytes;
}

void PageBytes::add(const PageBytes& others) {
  parts_.insert(parts_.end(), others.parts_.begin(), others.parts_.end());
  num_bytes_ += others.num_bytes_;
}

void PageBytes::read(int index, std::byte* to) const {
  for (const Part& part : parts_) {
    std::memcpy(to, part.base + static_cast<size_t>(index) * part.num_bytes, part.num_bytes);
    to += part.num_bytes;
  }
}

void PageBytes::write(int index, const std::byte* from) const {
  for (const Part& part : parts_) {
    std::memcpy(part.base + static_cast<size_t>(index) * part.num_bytes, from, part.num_bytes);
    from += part.num_bytes;
  }
}

}  // namespace attend
