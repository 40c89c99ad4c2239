#include "attend/tensor/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "attend/base/math.h"
#include "attend/base/printable.h"
#include "attend/tensor/cuda.h"
#include "attend/tensor/host_memory.h"

namespace attend {
namespace {

constexpr size_t kHugePageBytes = 2u << 20;

// Reads "MemAvailable:   123 kB" of /proc/meminfo; 0 if it cannot be read.
size_t meminfo_available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  size_t kibibytes = 0;
  while (file >> key >> kibibytes >> unit)
    if (key == "MemAvailable:") return kibibytes * 1024;
  return 0;
}

// Returns the memory left by this process's control groups: version 2, "0::/path", and version 1,
// "4:memory:/path".
size_t cgroup_available_bytes() {
  std::ifstream file("/proc/self/cgroup");
  size_t left = kNoMemoryLimit;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") left = std::min(left, cgroup_memory_left("/sys/fs/cgroup", path, kCgroup2));
    if (controllers.find(",memory,") != controllers.npos)
      left = std::min(left, cgroup_memory_left("/sys/fs/cgroup/memory", path, kCgroup1));
  }
  return left;
}

}  // namespace

size_t available_host_bytes() {
  const size_t machine = meminfo_available_bytes();
  return std::min({machine == 0 ? kNoMemoryLimit : machine, cgroup_available_bytes(), rlimit_memory_left()});
}

size_t available_bytes(Device device) {
  return device.type == DeviceType::kCuda ? cuda::device_info(device).free_bytes : available_host_bytes();
}

Arena::Arena(size_t num_bytes, std::string_view owner, Device device) : owner_(owner), device_(device) {
  // Linux overcommits memory; a pool that does not fit would be killed while it is filled.
  if (const size_t free_bytes = available_bytes(device); num_bytes > free_bytes)
    fail(ErrorCode::kOutOfMemory, owner_, ": needed ", num_bytes, " bytes",
         gigabytes_suffix(static_cast<double>(num_bytes)), ", free ", free_bytes,
         gigabytes_suffix(static_cast<double>(free_bytes)));
  if (device.type == DeviceType::kCuda)
    map_device(num_bytes);
  else
    map_host(num_bytes);
}

void Arena::map_host(size_t num_bytes) {
  size_bytes_ = round_up(std::max<size_t>(num_bytes, 1), kHugePageBytes);
  // One huge page more than requested, so that the block can start on a huge-page boundary.
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
