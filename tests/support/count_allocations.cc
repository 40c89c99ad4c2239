#include "tests/support/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> counter{0};

void* counted(std::size_t bytes) {
  counter.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

namespace attend::testing_support {
int64_t num_allocations() { return counter.load(std::memory_order_relaxed); }
}  // namespace attend::testing_support

// The array, sized and nothrow forms call these.
void* operator new(std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
