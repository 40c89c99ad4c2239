#include "attend/exec/image_encoder.h"

namespace attend {

ImageEncoder::ImageEncoder(std::unique_ptr<VisionTower> tower, size_t max_bytes, double max_flops)
    : tower_(std::move(tower)),
      max_bytes_(max_bytes),
      max_flops_(tower_->placement().device.type == DeviceType::kCpu ? 0.0 : max_flops) {}

std::optional<Tensor> ImageEncoder::find(const ContentHash& hash) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->rows;
}

std::optional<Tensor> ImageEncoder::advance(const std::shared_ptr<const ImageItem>& image, Stream& stream) {
  if (!encoding_ || encoding_->image().hash != image->hash) {
    encoding_.reset();  // frees its memory before the next one allocates
    encoding_.emplace(*tower_, image, stream);
  }
  try {
    bool is_complete = false;
    double flops = 0.0;
    do {
      flops += encoding_->part_flops();
      ++num_parts_;
      is_complete = !encoding_->advance(stream);
    } while (!is_complete && flops + encoding_->part_flops() <= max_flops_);
    if (!is_complete) return std::nullopt;
  } catch (...) {
    encoding_.reset();
    throw;
  }
  Tensor rows = encoding_->rows();
  encoding_.reset();
  ++num_encoded_;
  keep(image->hash, rows);
  return rows;
}

void ImageEncoder::keep(const ContentHash& hash, const Tensor& rows) {
  const size_t bytes = rows.view().num_bytes();
  if (bytes > max_bytes_) return;
  while (num_bytes_ + bytes > max_bytes_) {
    num_bytes_ -= entries_.back().rows.view().num_bytes();
    by_hash_.erase(entries_.back().hash);
    entries_.pop_back();
  }
  entries_.push_front({hash, rows});
  by_hash_.emplace(hash, entries_.begin());
  num_bytes_ += bytes;
}

}  // namespace attend
