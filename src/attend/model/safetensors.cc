#include "attend/model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "attend/base/error.h"
#include "attend/base/math.h"

namespace attend {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kFetchBytes = 16u << 20;

struct Mapping {
  std::shared_ptr<void> memory;
  size_t num_bytes = 0;
};

[[noreturn]] void refuse_to_read(const std::filesystem::path& path, int error_number) {
  fail(ErrorCode::kNotFound, path.string(), ": can not be read: ", std::strerror(error_number));
}

Mapping map_file(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) refuse_to_read(path, errno);
  const std::unique_ptr<const int, void (*)(const int*)> closer(&file, [](const int* f) { close(*f); });
  struct stat status {};
  if (fstat(file, &status) != 0) refuse_to_read(path, errno);
  if (!S_ISREG(status.st_mode)) fail(ErrorCode::kNotFound, path.string(), ": expected a regular file");
  const auto num_bytes = static_cast<size_t>(status.st_size);
  if (num_bytes < kLengthBytes)
    fail(ErrorCode::kCorruptFile, path.string(), ": ", num_bytes,
         " bytes: expected at least the 8 bytes of a safetensors header length");
  void* memory = mmap(nullptr, num_bytes, PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) refuse_to_read(path, errno);
  return {std::shared_ptr<void>(memory, [num_bytes](void* m) { munmap(m, num_bytes); }), num_bytes};
}

uint64_t read_little_endian(const std::byte* bytes) {
  uint64_t value = 0;
  for (size_t i = kLengthBytes; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  return value;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  const Mapping mapping = map_file(path);
  mapping_ = mapping.memory;
  const auto* file = static_cast<const std::byte*>(mapping_.get());
  const uint64_t header_bytes = read_little_endian(file);
  const uint64_t rest_bytes = mapping.num_bytes - kLengthBytes;
  if (header_bytes > std::min(rest_bytes, kMaxSafetensorsHeaderBytes))
    fail(ErrorCode::kCorruptFile, path.string(), ": header length ", header_bytes, ": at most ",
         std::min(rest_bytes, kMaxSafetensorsHeaderBytes), " (the file has ", mapping.num_bytes, " bytes)");
  const std::string_view header(reinterpret_cast<const char*>(file) + kLengthBytes, header_bytes);
  data_ = file + kLengthBytes + header_bytes;
  entries_ = parse_safetensors_header(header, rest_bytes - header_bytes, path.string());
  for (const SafetensorsEntry& entry : entries_) by_name_.emplace(entry.name, &entry);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr) fail(ErrorCode::kNotFound, path_.string(), ": no tensor \"", name, "\"");
  if (!entry->dtype)
    fail(ErrorCode::kUnsupported, path_.string(), ": tensor \"", name, "\": dtype ", entry->dtype_name,
         ": attend reads F32, F16, BF16, F8_E4M3, F8_E5M2, I32, I64, U8, U64");
  if (entry->shape.size() > kMaxRank)
    fail(ErrorCode::kUnsupported, path_.string(), ": tensor \"", name, "\": rank ", entry->shape.size(),
         ": attend has at most ", kMaxRank);
  // The mapping is read-only; views have one pointer type for what may and what may not be written.
  void* data = const_cast<std::byte*>(data_) + entry->begin;
  const TensorView view = TensorView::contiguous(data, *entry->dtype, entry->shape);
  if (reinterpret_cast<uintptr_t>(data) % size_of(*entry->dtype) == 0) return Tensor(view, mapping_);
  const Tensor copy = Tensor::empty({view.num_elements()}, *entry->dtype);
  std::memcpy(copy.view().data, data, view.num_bytes());
  return Tensor(TensorView::contiguous(copy.view().data, *entry->dtype, entry->shape), copy.storage());
}

void SafetensorsFile::fetch(const SafetensorsEntry& entry,
                            const std::function<void(size_t bytes)>& fetched) const {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data_) + entry.begin;
  const auto end = reinterpret_cast<uintptr_t>(data_) + entry.end;
  for (uintptr_t first = begin; first < end; first += kFetchBytes) {
    const uintptr_t last = std::min<uintptr_t>(first + kFetchBytes, end);
    const uintptr_t first_page = first / page_bytes * page_bytes;
    void* pages = reinterpret_cast<void*>(first_page);
    // Unlike a read of our own, this fails instead of raising SIGBUS when the file was cut short. Kernels
    // before 5.14 do not know it; there the pages come when they are first used.
    if (madvise(pages, last - first_page, MADV_POPULATE_READ) != 0 && errno == EFAULT)
      fail(ErrorCode::kCorruptFile, path_.string(), ": tensor \"", entry.name,
           "\": the file was cut short while it was read");
    fetched(last - first);
  }
}

}  // namespace attend
