#include "attend/serve/http/memory.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace attend::serve {
namespace {

constexpr size_t kReserveBytes = 8 << 20;
std::atomic<void*> reserve = nullptr;
std::atomic<bool> is_wanted = false;

void release_reserve() {
  void* const memory = reserve.exchange(nullptr);
  if (memory == nullptr) throw std::bad_alloc();
  std::free(memory);
}

}  // namespace

MemoryReserve::MemoryReserve() {
  is_wanted = true;
  restore();
  std::set_new_handler(release_reserve);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(nullptr);
  is_wanted = false;
  std::free(reserve.exchange(nullptr));
}

void MemoryReserve::restore() noexcept {
  if (!is_released()) return;
  void* const before = reserve.exchange(std::malloc(kReserveBytes));
  std::free(before);  // reserve that another thread restored concurrently
}

bool MemoryReserve::is_released() { return is_wanted && reserve == nullptr; }

}  // namespace attend::serve
