// OperationMemory: room for one asynchronous operation of Asio at a time, so that starting it again and again
// can not fail for want of memory.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace attend::serve {

class OperationMemory {
 public:
  OperationMemory() = default;
  OperationMemory(const OperationMemory&) = delete;

  // From the heap where it is in use, or too small.
  void* take(size_t num_bytes) {
    if (taken_ || num_bytes > sizeof bytes_) return ::operator new(num_bytes);
    taken_ = true;
    return bytes_;
  }
  void give_back(void* memory) noexcept {
    if (memory != bytes_) return ::operator delete(memory);
    taken_ = false;
  }

 private:
  alignas(std::max_align_t) std::byte bytes_[512];
  bool taken_ = false;
};

template <class T>
class OperationAllocator {
 public:
  using value_type = T;
  explicit OperationAllocator(OperationMemory& memory) : memory_(&memory) {}
  template <class Other>
  OperationAllocator(const OperationAllocator<Other>& other) : memory_(other.memory()) {}

  T* allocate(size_t count) { return static_cast<T*>(memory_->take(count * sizeof(T))); }
  void deallocate(T* items, size_t) noexcept { memory_->give_back(items); }
  OperationMemory* memory() const { return memory_; }
  bool operator==(const OperationAllocator& other) const { return memory_ == other.memory_; }

 private:
  OperationMemory* memory_;
};

// A handler whose operation lies there.
template <class Handler>
class KeptHandler {
 public:
  using allocator_type = OperationAllocator<std::byte>;
  KeptHandler(OperationMemory& memory, Handler handler) : memory_(&memory), handler_(std::move(handler)) {}
  allocator_type get_allocator() const noexcept { return allocator_type(*memory_); }
  template <class... Results>
  void operator()(Results&&... results) {
    handler_(std::forward<Results>(results)...);
  }

 private:
  OperationMemory* memory_;
  Handler handler_;
};

}  // namespace attend::serve
