#include "tests/model/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int> counted{0};
}

int attend::test::num_allocations() { return counted; }

void* operator new(size_t num_bytes) {
  ++counted;
  if (void* memory = std::malloc(num_bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
