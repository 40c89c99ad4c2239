// StagedUpload: copies weights from host memory to a GPU at the rate of the link.
#pragma once

#include <optional>

#include "attend/tensor/cuda.h"

namespace attend {

// Copies through two page-locked buffers: all threads fill one while the GPU reads the other. The driver's
// own copy from pageable memory uses one thread, which reads mapped files at a tenth of the link's rate.
class StagedUpload {
 public:
  explicit StagedUpload(Stream& stream) : stream_(stream) {}

  // Queues the copy; `from` may be freed afterwards. Both views are contiguous and have the same dtype and
  // size. Throws Error(kOutOfMemory) if the buffers cannot be allocated.
  void copy(const TensorView& from, const TensorView& to);

 private:
  struct Buffer {
    Tensor memory;
    cuda::Event copied;
  };

  Stream& stream_;
  std::optional<Buffer> buffers_[2];
  int next_ = 0;
};

}  // namespace attend
