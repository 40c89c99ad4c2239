#include "attend/model/weights/staged_upload.h"

#include <algorithm>
#include <cstring>

#include "attend/base/math.h"
#include "attend/base/parallel.h"

namespace attend {
namespace {

constexpr int64_t kBufferBytes = int64_t{32} << 20;
constexpr int64_t kTaskBytes = int64_t{1} << 20;

void copy_in_parallel(const char* from, char* to, int64_t num_bytes) {
  parallel_for(ceil_div(num_bytes, kTaskBytes), [&](int64_t task, int) {
    const int64_t begin = task * kTaskBytes;
    std::memcpy(to + begin, from + begin, static_cast<size_t>(std::min(kTaskBytes, num_bytes - begin)));
  });
}

}  // namespace

void StagedUpload::copy(const TensorView& from, const TensorView& to) {
  const auto num_bytes = static_cast<int64_t>(from.num_bytes());
  for (int64_t begin = 0; begin < num_bytes; begin += kBufferBytes) {
    const int64_t count = std::min(kBufferBytes, num_bytes - begin);
    std::optional<Buffer>& buffer = buffers_[next_];
    if (buffer)
      buffer->copied.synchronize();
    else
      buffer.emplace(cuda::empty_pinned({kBufferBytes}, DType::kU8, stream_.device),
                     cuda::Event(stream_.device));
    const TensorView staged = buffer->memory.view().slice(0, 0, count);
    copy_in_parallel(static_cast<const char*>(from.data) + begin, static_cast<char*>(staged.data), count);
    cuda::copy(
        staged,
        TensorView::contiguous(static_cast<char*>(to.data) + begin, DType::kU8, {count}, stream_.device),
        stream_);
    buffer->copied.record(stream_);
    next_ = 1 - next_;
  }
}

}  // namespace attend
