#include "attend/checkpoint/hf/safetensors.h"

#include <algorithm>
#include <string>
#include <utility>

#include "attend/base/error.h"
#include "attend/checkpoint/file_mapping.h"

namespace attend {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kLfsPointerBytes = 64;  // enough to recognize a pointer

uint64_t read_little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = kLengthBytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

TensorFile open(const std::filesystem::path& path) {
  auto mapping = std::make_shared<FileMapping>(path);
  const size_t file_bytes = mapping->num_bytes();
  // Copies, which cannot change between a check and their use.
  reject_lfs_pointer(mapping->read(0, kLfsPointerBytes), path);
  const std::string length = mapping->read(0, kLengthBytes);
  if (length.size() < kLengthBytes)
    fail(ErrorCode::kCorruptFile, path.string(), ": ", length.size(),
         " bytes: expected at least the 8 bytes of a safetensors header length");
  const uint64_t header_bytes = read_little_endian(length);
  const uint64_t rest_bytes = file_bytes - std::min(file_bytes, kLengthBytes);
  if (header_bytes > std::min(rest_bytes, kMaxSafetensorsHeaderBytes))
    fail(ErrorCode::kCorruptFile, path.string(), ": header length ", header_bytes, ": at most ",
         std::min(rest_bytes, kMaxSafetensorsHeaderBytes), " (the file has ", file_bytes, " bytes)");
  const std::string header = mapping->read(kLengthBytes, header_bytes);
  std::vector<TensorEntry> entries =
      parse_safetensors_header(header, rest_bytes - header_bytes, path.string());
  return {path, std::move(mapping), kLengthBytes + header_bytes, std::move(entries)};
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : TensorFile(open(path)) {}

}  // namespace attend
