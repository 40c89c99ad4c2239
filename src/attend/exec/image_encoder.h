// ImageEncoder: encodes images in parts between the steps of an executor, and keeps encoded images by
// content.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <optional>

#include "attend/media/image.h"
#include "attend/model/multimodal/vision_encoding.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Keeps the rows of the images that were used last, up to a number of bytes. An image that was evicted is
// encoded again when a request needs it, so the limit affects speed only.
class ImageEncoder {
 public:
  // Floating-point operations of the parts that a call of advance() queues on a GPU: a step waits for them,
  // so their time should be that of a few steps of decoding (5 ms at 400 TFLOP/s). At least one part is
  // queued; on a CPU, one.
  static constexpr double kGpuFlops = 2e12;

  ImageEncoder(std::unique_ptr<VisionTower> tower, size_t max_bytes)
      : ImageEncoder(std::move(tower), max_bytes, kGpuFlops) {}
  ImageEncoder(std::unique_ptr<VisionTower> tower, size_t max_bytes, double max_flops);

  // Returns the rows of an encoded image (VisionEncoding::rows()), if they are kept. The tensor outlives an
  // eviction.
  std::optional<Tensor> find(const ContentHash& hash);
  // Computes the next parts of an image that find() does not return, and returns the rows after the last
  // part. Only one image is in progress: if it is another one, it is dropped.
  std::optional<Tensor> advance(const std::shared_ptr<const ImageItem>& image, Stream& stream);
  // Replaces the tower, and drops all encoded images. Null: advance() requires another call before.
  void set_tower(std::unique_ptr<VisionTower> tower) {
    encoding_.reset();
    entries_.clear();
    by_hash_.clear();
    num_bytes_ = 0;
    tower_ = std::move(tower);
  }
  // Drops the image in progress, if there is one.
  void cancel() { encoding_.reset(); }

  bool in_progress() const { return encoding_.has_value(); }
  int64_t num_parts() const { return num_parts_; }      // of all images so far
  int64_t num_encoded() const { return num_encoded_; }  // images with all parts
  size_t num_bytes() const { return num_bytes_; }
  size_t weight_bytes() const { return tower_ ? tower_->weight_bytes() : 0; }

 private:
  struct Entry {
    ContentHash hash;
    Tensor rows;
  };

  void keep(const ContentHash& hash, const Tensor& rows);

  std::unique_ptr<VisionTower> tower_;
  std::optional<VisionEncoding> encoding_;
  size_t max_bytes_, num_bytes_ = 0;
  double max_flops_;  // of one advance(); 0: one part
  int64_t num_parts_ = 0, num_encoded_ = 0;
  std::list<Entry> entries_;  // last used first
  std::map<ContentHash, std::list<Entry>::iterator> by_hash_;
};

}  // namespace attend
