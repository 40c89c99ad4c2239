#include "attend/checkpoint/hf/safetensors.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "attend/base/error.h"
#include "attend/checkpoint/file_mapping.h"

namespace attend {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kLfsPointerBytes = 64;  // enough to recognize a pointer
constexpr size_t kFetchBytes = 16u << 20;

uint64_t read_little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = kLengthBytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), mapping_(std::make_shared<FileMapping>(path)) {
  const size_t file_bytes = mapping_->num_bytes();
  // Copies, which cannot change between a check and their use.
  reject_lfs_pointer(mapping_->read(0, kLfsPointerBytes), path);
  const std::string length = mapping_->read(0, kLengthBytes);
  if (length.size() < kLengthBytes)
    fail(ErrorCode::kCorruptFile, path.string(), ": ", length.size(),
         " bytes: expected at least the 8 bytes of a safetensors header length");
  const uint64_t header_bytes = read_little_endian(length);
  const uint64_t rest_bytes = file_bytes - std::min(file_bytes, kLengthBytes);
  if (header_bytes > std::min(rest_bytes, kMaxSafetensorsHeaderBytes))
    fail(ErrorCode::kCorruptFile, path.string(), ": header length ", header_bytes, ": at most ",
         std::min(rest_bytes, kMaxSafetensorsHeaderBytes), " (the file has ", file_bytes, " bytes)");
  const std::string header = mapping_->read(kLengthBytes, header_bytes);
  entries_ = parse_safetensors_header(header, rest_bytes - header_bytes, path.string());
  for (const TensorEntry& entry : entries_) by_name_.emplace(entry.name, &entry);
  data_begin_ = kLengthBytes + header_bytes;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) fail(ErrorCode::kNotFound, path_.string(), ": no tensor \"", name, "\"");
  if (!entry->dtype)
    fail(ErrorCode::kUnsupported, path_.string(), ": tensor \"", name, "\": dtype ", entry->dtype_name,
         ": supported are F32, F16, BF16, F8_E4M3, F8_E5M2, I32, I64, I8, U8, U64");
  if (entry->shape.size() > kMaxRank)
    fail(ErrorCode::kUnsupported, path_.string(), ": tensor \"", name, "\": rank ", entry->shape.size(),
         ": at most ", kMaxRank);
  // The mapping is read-only; views have one pointer type for writable and read-only memory.
  void* data = const_cast<std::byte*>(mapping_->bytes()) + data_begin_ + entry->begin;
  const TensorView view = TensorView::contiguous(data, *entry->dtype, entry->shape);
  if (reinterpret_cast<uintptr_t>(data) % size_of(*entry->dtype) == 0) return Tensor(view, mapping_);
  const Tensor copy = Tensor::empty({view.num_elements()}, *entry->dtype);
  std::memcpy(copy.view().data, data, view.num_bytes());
  return Tensor(TensorView::contiguous(copy.view().data, *entry->dtype, entry->shape), copy.storage());
}

std::string SafetensorsFile::read(const TensorEntry& entry) const {
  return mapping_->read(data_begin_ + entry.begin, entry.end - entry.begin);
}

void SafetensorsFile::fetch(const TensorEntry& entry, uint64_t begin, uint64_t end,
                            const std::function<void(size_t bytes)>& fetched) const {
  ensure(begin <= end && end <= entry.num_bytes(), path_.string(), ": bytes ", begin, " to ", end,
         " of tensor \"", entry.name, "\", which has ", entry.num_bytes());
  const uint64_t data = data_begin_ + entry.begin, last = data + end;
  for (uint64_t first = data + begin; first < last; first += kFetchBytes) {
    const size_t num_bytes = std::min<uint64_t>(kFetchBytes, last - first);
    if (!mapping_->fetch(first, num_bytes))
      fail(ErrorCode::kCorruptFile, path_.string(), ": tensor \"", entry.name,
           "\": the file was truncated while it was read: expected a file that is not modified while attend "
           "runs");
    fetched(num_bytes);
  }
  check_unchanged();
}

void SafetensorsFile::prefetch_all(const std::atomic<bool>& stop) const {
  const size_t end = mapping_->num_bytes();
  for (size_t first = 0; first < end && !stop; first += kFetchBytes)
    if (!mapping_->fetch(first, std::min<size_t>(kFetchBytes, end - first))) return;
}

void SafetensorsFile::check_unchanged() const {
  if (!mapping_->unchanged())
    fail(ErrorCode::kCorruptFile, path_.string(),
         ": the file was modified while attend used it: expected a file that is not modified while attend "
         "runs");
}

}  // namespace attend
