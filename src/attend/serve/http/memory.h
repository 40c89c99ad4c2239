// How a server continues when memory has run out. MemoryReserve: memory that is released so that operations
// that must not fail succeed. OperationMemory: storage for one asynchronous Asio operation, so that
// restarting it cannot fail. run_guarded(): catches exceptions of everything that answers a request.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#include "attend/serve/http/exchange.h"

namespace attend::serve {

// Runs a task that answers the exchange. If it throws because memory has run out, only this exchange ends.
// All calls into handlers and recipients pass through this function, so these do not need to catch
// exceptions.
template <class Task>
void run_guarded(Exchange& exchange, Task&& task) noexcept {
  try {
    task();
  } catch (...) {
    exchange.abandon();
  }
}

// Memory reserve of a process; one instance at a time. Requests are parsed to Json objects, and destroying a
// Json allocates memory. If that failed, the server would end.
class MemoryReserve {
 public:
  // Installs a handler: operator new uses the reserve before it throws.
  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;

  // Allocates the reserve again if it was released and memory is available. The server calls it before each
  // request. May be called from any thread; has no effect without an instance.
  static void restore() noexcept;
  static bool is_released();
};

class OperationMemory {
 public:
  OperationMemory() = default;
  OperationMemory(const OperationMemory&) = delete;

  // Allocates from the heap if the storage is in use or too small.
  void* take(size_t num_bytes) {
    if (taken_ || num_bytes > sizeof bytes_) return ::operator new(num_bytes);
    taken_ = true;
    return bytes_;
  }
  void release(void* memory) noexcept {
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
  void deallocate(T* items, size_t) noexcept { memory_->release(items); }
  OperationMemory* memory() const { return memory_; }
  bool operator==(const OperationAllocator& other) const { return memory_ == other.memory_; }

 private:
  OperationMemory* memory_;
};

// Handler of an operation that is stored in an OperationMemory.
template <class Handler>
class StoredHandler {
 public:
  using allocator_type = OperationAllocator<std::byte>;
  StoredHandler(OperationMemory& memory, Handler handler) : memory_(&memory), handler_(std::move(handler)) {}
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
