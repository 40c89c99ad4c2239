#include "attend/checkpoint/tensor_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "attend/base/error.h"
#include "attend/checkpoint/file_mapping.h"

namespace attend {
namespace {

constexpr size_t kFetchBytes = 16u << 20;

}  // namespace

TensorFile::TensorFile(std::filesystem::path path, std::shared_ptr<FileMapping> mapping, size_t data_begin,
                       std::vector<TensorEntry> entries)
    : path_(std::move(path)),
      mapping_(std::move(mapping)),
      data_begin_(data_begin),
      entries_(std::move(entries)) {
  for (const TensorEntry& entry : entries_) by_name_.emplace(entry.name, &entry);
}

const TensorEntry* TensorFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Tensor TensorFile::tensor(std::string_view name) const {
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

std::string TensorFile::read(const TensorEntry& entry) const {
  return mapping_->read(data_begin_ + entry.begin, entry.end - entry.begin);
}

void TensorFile::fetch(const TensorEntry& entry, uint64_t begin, uint64_t end,
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

void TensorFile::prefetch_all(const std::atomic<bool>& stop) const {
  const size_t end = mapping_->num_bytes();
  for (size_t first = 0; first < end && !stop; first += kFetchBytes)
    if (!mapping_->fetch(first, std::min<size_t>(kFetchBytes, end - first))) return;
}

void TensorFile::check_unchanged() const {
  if (!mapping_->unchanged())
    fail(ErrorCode::kCorruptFile, path_.string(),
         ": the file was modified while attend used it: expected a file that is not modified while attend "
         "runs");
}

}  // namespace attend
