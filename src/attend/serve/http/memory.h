// How a server goes on when memory has run out. MemoryReserve: memory that is given up, so that what must not
// fail then does not. OperationMemory: room for one asynchronous operation of Asio at a time, so that
// starting it again and again can not fail. survive(): the boundary around everything that answers a request.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#include "attend/serve/http/exchange.h"

namespace attend::serve {

// Runs `task`, which answers the exchange or leads to its answer. What it throws, as memory ran out, ends
// this exchange and no other: all calls into handlers and recipients go through here, so these need not care.
template <class Task>
void survive(Exchange& exchange, Task&& task) noexcept {
  try {
    task();
  } catch (...) {
    exchange.abandon();
  }
}

// One at a time in a process. Requests are read with a Json, which takes memory to be destroyed: where that
// failed, the server would end.
class MemoryReserve {
 public:
  // From then on operator new finds it before it throws.
  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;

  // Takes it again if it was given up and there is memory, as the server does before each request. From any
  // thread; of no effect where there is none.
  static void restore() noexcept;
  static bool is_released();
};

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
