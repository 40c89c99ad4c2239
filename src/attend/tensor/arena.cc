#include "attend/tensor/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "attend/base/gigabytes.h"
#include "attend/base/math.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

constexpr size_t kHugePageBytes = 2u << 20;

// "MemAvailable:   123 kB" in /proc/meminfo; 0 when it can not be read.
size_t meminfo_available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  size_t kibibytes = 0;
  while (file >> key >> kibibytes >> unit)
    if (key == "MemAvailable:") return kibibytes * 1024;
  return 0;
}

// A number in a file, or `otherwise` ("max" in cgroup files means no limit).
size_t read_number(const char* path, size_t otherwise) {
  std::ifstream file(path);
  size_t value = 0;
  return file >> value ? value : otherwise;
}

// Bytes of a cgroup's memory that hold file pages: they make room when memory is asked for.
size_t cgroup_file_bytes() {
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string key;
  size_t value = 0, bytes = 0;
  while (file >> key >> value)
    if (key == "active_file" || key == "inactive_file") bytes += value;
  return bytes;
}

}  // namespace

size_t available_host_bytes() {
  constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  const size_t limit = read_number("/sys/fs/cgroup/memory.max", kNoLimit);
  const size_t held = read_number("/sys/fs/cgroup/memory.current", 0);
  const size_t used = held - std::min(held, cgroup_file_bytes());
  const size_t cgroup_rest = limit == kNoLimit ? kNoLimit : limit - std::min(limit, used);
  const size_t machine = meminfo_available_bytes();
  return machine == 0 ? cgroup_rest : std::min(machine, cgroup_rest);
}

size_t available_bytes(Device device) {
  return device.type == DeviceType::kCuda ? cuda::device_info(device).free_bytes : available_host_bytes();
}

Arena::Arena(size_t num_bytes, std::string_view owner, Device device) : owner_(owner), device_(device) {
  // Linux promises more memory than it has; a pool that does not fit would die while it is filled.
  if (const size_t free_bytes = available_bytes(device); num_bytes > free_bytes)
    fail(ErrorCode::kOutOfMemory, owner_, ": needed ", num_bytes, " bytes",
         gigabytes_beside(static_cast<double>(num_bytes)), ", free ", free_bytes,
         gigabytes_beside(static_cast<double>(free_bytes)));
  if (device.type == DeviceType::kCuda)
    map_device(num_bytes);
  else
    map_host(num_bytes);
}

void Arena::map_host(size_t num_bytes) {
  size_bytes_ = round_up(std::max<size_t>(num_bytes, 1), kHugePageBytes);
  // One huge page more than asked for, so that the block can start on a huge-page boundary.
  const size_t mapped_bytes = size_bytes_ + kHugePageBytes;
  void* mapped =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    fail(ErrorCode::kOutOfMemory, owner_, ": needed ", num_bytes, " bytes, free ", available_host_bytes());
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  void* aligned = reinterpret_cast<void*>(round_up(address, uintptr_t{kHugePageBytes}));
  madvise(aligned, size_bytes_, MADV_HUGEPAGE);
  memory_ = std::shared_ptr<void>(aligned, [mapped, mapped_bytes](void*) { munmap(mapped, mapped_bytes); });
}

void Arena::map_device(size_t num_bytes) {
  size_bytes_ = padded_bytes(std::max<size_t>(num_bytes, 1));
  memory_ = cuda::zeros({static_cast<int64_t>(size_bytes_)}, DType::kU8, device_).storage();
}

Tensor Arena::allocate(std::initializer_list<int64_t> shape, DType dtype) {
  TensorView view = TensorView::contiguous(nullptr, dtype, shape, device_);
  const size_t bytes = padded_bytes(view.num_bytes());
  if (bytes > size_bytes_ - used_bytes_)
    fail(ErrorCode::kOutOfMemory, owner_, ": needed ", bytes, " bytes for ", view, ", free ",
         size_bytes_ - used_bytes_, " of ", size_bytes_);
  view.data = static_cast<char*>(memory_.get()) + used_bytes_;
  used_bytes_ += bytes;
  return Tensor(view, memory_);
}

}  // namespace attend
