#include "tests/support/count_allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> num_counted = 0, bytes_counted = 0, num_live = 0;

constexpr int64_t kNever = -1, kHasFailed = -2;
thread_local int64_t num_good_left = kNever;

// Returns null if no memory is available.
void* allocate(std::size_t alignment, std::size_t bytes) {
  num_counted.fetch_add(1, std::memory_order_relaxed);
  bytes_counted.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

void* allocate_or_throw(std::size_t alignment, std::size_t bytes) {
  if (num_good_left == 0) {
    num_good_left = kHasFailed;
    // The new_handler returns if it has freed memory.
    const std::new_handler find_memory = std::get_new_handler();
    if (find_memory == nullptr) throw std::bad_alloc();
    find_memory();
  }
  if (num_good_left > 0) --num_good_left;
  num_live.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = allocate(alignment, bytes)) return memory;
  throw std::bad_alloc();
}

void deallocate(void* memory) noexcept {
  if (memory != nullptr) num_live.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

constexpr std::size_t kAlignment = alignof(std::max_align_t);

}  // namespace

namespace attend::testing_support {
int64_t num_allocations() { return num_counted.load(std::memory_order_relaxed); }
int64_t allocated_bytes() { return bytes_counted.load(std::memory_order_relaxed); }
int64_t num_live_allocations() { return num_live.load(std::memory_order_relaxed); }
void fail_one_allocation_after(int64_t num_good) { num_good_left = num_good < 0 ? kNever : num_good; }
bool allocation_has_failed() { return num_good_left == kHasFailed; }
}  // namespace attend::testing_support

// Replaces every form that the programs use. AddressSanitizer defines all of them, and its forms must not be
// mixed with these.
void* operator new(std::size_t bytes) { return allocate_or_throw(kAlignment, bytes); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(kAlignment, bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(static_cast<std::size_t>(alignment), bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  num_live.fetch_add(1, std::memory_order_relaxed);
  return allocate(kAlignment, bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  num_live.fetch_add(1, std::memory_order_relaxed);
  return allocate(kAlignment, bytes);
}
void operator delete(void* memory) noexcept { deallocate(memory); }
void operator delete[](void* memory) noexcept { deallocate(memory); }
void operator delete(void* memory, std::size_t) noexcept { deallocate(memory); }
void operator delete[](void* memory, std::size_t) noexcept { deallocate(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { deallocate(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { deallocate(memory); }
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return allocate(alignment, bytes);
}
