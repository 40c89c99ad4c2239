#include "attend/exec/image_cache.h"

namespace attend {

Tensor ImageCache::rows(const ImageItem& image, Stream& stream) {
  if (const auto found = by_hash_.find(image.hash); found != by_hash_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->rows;
  }
  Tensor rows = tower_->encode(image, stream);
  ++num_encoded_;
  const size_t bytes = rows.view().num_bytes();
  if (bytes > max_bytes_) return rows;
  while (num_bytes_ + bytes > max_bytes_) {
    num_bytes_ -= entries_.back().rows.view().num_bytes();
    by_hash_.erase(entries_.back().hash);
    entries_.pop_back();
  }
  entries_.push_front({image.hash, rows});
  by_hash_.emplace(image.hash, entries_.begin());
  num_bytes_ += bytes;
  return rows;
}

}  // namespace attend
