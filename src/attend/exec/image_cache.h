// ImageCache: encoded images of an executor, by content.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>

#include "attend/media/image.h"
#include "attend/model/multimodal/vision_tower.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Keeps the rows of the images that were used last, up to a number of bytes. An image that was evicted is
// encoded again when a step needs it, so the limit affects speed only.
class ImageCache {
 public:
  ImageCache(std::unique_ptr<VisionTower> tower, size_t max_bytes)
      : tower_(std::move(tower)), max_bytes_(max_bytes) {}

  // Returns the rows of the image's tokens (VisionTower::encode()). The tensor outlives an eviction.
  Tensor rows(const ImageItem& image, Stream& stream);

  int64_t num_encoded() const { return num_encoded_; }  // images that were not in the cache
  size_t num_bytes() const { return num_bytes_; }
  size_t weight_bytes() const { return tower_->weight_bytes(); }

 private:
  struct Entry {
    ContentHash hash;
    Tensor rows;
  };

  std::unique_ptr<VisionTower> tower_;
  size_t max_bytes_, num_bytes_ = 0;
  int64_t num_encoded_ = 0;
  std::list<Entry> entries_;  // last used first
  std::map<ContentHash, std::list<Entry>::iterator> by_hash_;
};

}  // namespace attend
