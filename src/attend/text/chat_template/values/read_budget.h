// ReadBudget: limit of the bytes that the operations of one rendering read. Templates are untrusted, and an
// operation on a long text or list is a single step of the renderer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attend::chat_template {

// The budget of the rendering that runs on this thread. Operations on values charge it themselves, so that
// none of them is free, wherever it is called.
class ReadBudget {
 public:
  static constexpr int64_t kMaxBytes = int64_t{1} << 29;

  ReadBudget() : outer_(current_) { current_ = this; }
  ~ReadBudget() { current_ = outer_; }
  ReadBudget(const ReadBudget&) = delete;
  ReadBudget& operator=(const ReadBudget&) = delete;

  // Throws TemplateError if the rendering reads more than kMaxBytes. Has no effect outside of a rendering.
  static void charge(size_t bytes) {
    if (current_ != nullptr && (current_->num_left_ -= static_cast<int64_t>(bytes)) < 0) fail();
  }

 private:
  [[noreturn]] static void fail();

  static constinit thread_local ReadBudget* current_;
  ReadBudget* outer_;
  int64_t num_left_ = kMaxBytes;
};

// Bytes charged per character of operations that decode and convert, and per value that is visited.
inline constexpr size_t kBytesPerConvertedChar = 16;
inline constexpr size_t kBytesPerVisit = 64;

}  // namespace attend::chat_template
