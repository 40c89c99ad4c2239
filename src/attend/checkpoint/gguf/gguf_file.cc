#include "attend/checkpoint/gguf/gguf_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "attend/base/error.h"
#include "attend/checkpoint/input_file.h"
#include "attend/checkpoint/parse_json.h"

namespace attend {
namespace {

// Most headers fit into the first read; those of large vocabularies into the second or third.
constexpr size_t kFirstHeaderBytes = size_t{1} << 20, kMaxHeaderBytes = size_t{512} << 20;
constexpr int kMaxSplits = 99999;  // of the five digits in file names

template <class T>
void append(std::string_view bytes, auto& numbers) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    numbers.push_back(static_cast<typename std::remove_reference_t<decltype(numbers)>::value_type>(value));
  }
}

// Returns false for arrays of strings or booleans.
bool append_numbers(const GgufArray& array, auto& numbers) {
  switch (array.type) {
    case GgufValueType::kU8:
      append<uint8_t>(array.bytes, numbers);
      return true;
    case GgufValueType::kI8:
      append<int8_t>(array.bytes, numbers);
      return true;
    case GgufValueType::kU16:
      append<uint16_t>(array.bytes, numbers);
      return true;
    case GgufValueType::kI16:
      append<int16_t>(array.bytes, numbers);
      return true;
    case GgufValueType::kU32:
      append<uint32_t>(array.bytes, numbers);
      return true;
    case GgufValueType::kI32:
      append<int32_t>(array.bytes, numbers);
      return true;
    case GgufValueType::kU64:
      append<uint64_t>(array.bytes, numbers);
      return true;
    case GgufValueType::kI64:
      append<int64_t>(array.bytes, numbers);
      return true;
    default:
      return false;
  }
}

std::string describe(const GgufValue& value) {
  struct Describe {
    std::string operator()(int64_t number) const { return std::to_string(number); }
    std::string operator()(uint64_t number) const { return std::to_string(number); }
    std::string operator()(double number) const { return excerpt(Json(number)); }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::string_view text) const { return excerpt(std::string(text)); }
    std::string operator()(const GgufArray& array) const {
      return "an array of " + std::to_string(array.size) + " elements";
    }
  };
  return std::visit(Describe(), value);
}

std::pair<std::shared_ptr<const std::string>, GgufHeader> read_header(const FileMapping& mapping,
                                                                      const std::string& name) {
  for (size_t num_bytes = kFirstHeaderBytes;; num_bytes *= 4) {
    // A copy, which cannot change between a check and its use.
    auto bytes = std::make_shared<std::string>(mapping.read(0, std::min(num_bytes, mapping.num_bytes())));
    if (auto header = parse_gguf_header(*bytes, std::max(bytes->size(), mapping.num_bytes()), name))
      return {std::move(bytes), *std::move(header)};
    if (num_bytes >= mapping.num_bytes())
      fail(ErrorCode::kCorruptFile, name, ": the file was truncated while it was read");
    if (num_bytes >= kMaxHeaderBytes)
      fail(ErrorCode::kUnsupported, name, ": metadata of more than ", num_bytes, " bytes: expected at most ",
           kMaxHeaderBytes);
  }
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path)
    : name_(path.string()), mapping_(std::make_shared<FileMapping>(path)) {
  reject_lfs_pointer(mapping_->read(0, 64), path);
  auto [bytes, header] = read_header(*mapping_, name_);
  bytes_ = std::move(bytes);
  header_ = std::move(header);
}

GgufFile::GgufFile(std::string bytes, std::string name)
    : name_(std::move(name)), bytes_(std::make_shared<const std::string>(std::move(bytes))) {
  auto header = parse_gguf_header(*bytes_, bytes_->size(), name_);
  ensure(header.has_value(), name_, ": all bytes were read");
  header_ = *std::move(header);
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = std::ranges::find(header_.fields, key, &GgufField::key);
  return found == header_.fields.end() ? nullptr : &found->value;
}

void GgufFile::reject(std::string_view key, std::string_view expected) const {
  const GgufValue* const value = find(key);
  fail(ErrorCode::kCorruptFile, name_, ": metadata \"", key, "\" ",
       value == nullptr ? "is missing" : describe(*value), ": expected ", expected);
}

std::optional<std::string_view> GgufFile::find_text(std::string_view key) const {
  const GgufValue* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* const text = std::get_if<std::string_view>(value)) return *text;
  reject(key, "a string");
}

std::string_view GgufFile::text(std::string_view key) const {
  const auto found = find_text(key);
  if (!found) reject(key, "a string");
  return *found;
}

std::optional<int64_t> GgufFile::find_integer(std::string_view key) const {
  const GgufValue* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* const number = std::get_if<int64_t>(value)) return *number;
  reject(key, "an integer below 2^63");
}

std::optional<double> GgufFile::find_number(std::string_view key) const {
  const GgufValue* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* const number = std::get_if<double>(value)) return *number;
  if (const auto* const number = std::get_if<int64_t>(value)) return static_cast<double>(*number);
  reject(key, "a number");
}

std::optional<bool> GgufFile::find_boolean(std::string_view key) const {
  const GgufValue* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* const flag = std::get_if<bool>(value)) return *flag;
  reject(key, "a boolean");
}

std::optional<std::vector<double>> GgufFile::find_numbers(std::string_view key) const {
  const GgufValue* const value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* const array = std::get_if<GgufArray>(value);
  std::vector<double> numbers;
  if (array != nullptr && array->type == GgufValueType::kF32) {
    append<float>(array->bytes, numbers);
  } else if (array != nullptr && array->type == GgufValueType::kF64) {
    append<double>(array->bytes, numbers);
  } else if (array == nullptr || !append_numbers(*array, numbers)) {
    reject(key, "an array of numbers");
  }
  return numbers;
}

std::optional<std::vector<int64_t>> GgufFile::find_integers(std::string_view key) const {
  const GgufValue* const value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* const array = std::get_if<GgufArray>(value);
  std::vector<int64_t> numbers;
  if (array != nullptr && array->type == GgufValueType::kBool)
    append<uint8_t>(array->bytes, numbers);
  else if (array == nullptr || !append_numbers(*array, numbers))
    reject(key, "an array of integers");
  return numbers;
}

const std::vector<std::string_view>* GgufFile::find_texts(std::string_view key) const {
  const GgufValue* const value = find(key);
  if (value == nullptr) return nullptr;
  const auto* const array = std::get_if<GgufArray>(value);
  if (array == nullptr || array->type != GgufValueType::kString) reject(key, "an array of strings");
  return &array->strings;
}

const GgufTensorInfo* GgufFile::find_tensor(std::string_view name) const {
  const auto found = std::ranges::find(header_.tensors, name, &GgufTensorInfo::name);
  return found == header_.tensors.end() ? nullptr : &*found;
}

std::vector<double> GgufFile::read_numbers(const GgufTensorInfo& tensor) const {
  constexpr uint64_t kMaxBytes = 1 << 16;
  if (tensor.type->dtype != DType::kF32 || tensor.end - tensor.begin > kMaxBytes)
    fail(ErrorCode::kCorruptFile, name_, ": tensor ", excerpt(std::string(tensor.name)), " in ",
         tensor.type->name, ", ", tensor.end - tensor.begin, " bytes: expected F32, at most ", kMaxBytes,
         " bytes");
  const uint64_t begin = header_.data_begin + tensor.begin, num_bytes = tensor.end - tensor.begin;
  const std::string bytes = mapping_ ? mapping_->read(begin, num_bytes) : bytes_->substr(begin, num_bytes);
  std::vector<double> numbers;
  append<float>(bytes, numbers);
  return numbers;
}

std::vector<GgufFile> open_gguf_files(const std::filesystem::path& path) {
  std::vector<GgufFile> files;
  files.emplace_back(path);
  const int64_t num_files = files[0].find_integer("split.count").value_or(1);
  if (num_files <= 1) return files;
  if (num_files > kMaxSplits) files[0].reject("split.count", "at most " + std::to_string(kMaxSplits));
  const auto ending = [&](int64_t index) {
    char text[32];
    std::snprintf(text, sizeof text, "-%05d-of-%05d.gguf", static_cast<int>(index + 1),
                  static_cast<int>(num_files));
    return std::string(text);
  };
  const std::string name = path.filename().string(), first = ending(0);
  if (!name.ends_with(first) || files[0].find_integer("split.no").value_or(0) != 0)
    fail(ErrorCode::kNotFound, path.string(), ": one of ", num_files,
         " files of a split model: expected the first one, with a name that ends in ", first);
  const std::string stem = name.substr(0, name.size() - first.size());
  for (int64_t index = 1; index < num_files; ++index) {
    const std::filesystem::path part = path.parent_path() / (stem + ending(index));
    if (!file_exists(part))
      fail(ErrorCode::kNotFound, part.string(), ": missing part of the split file ", name);
    files.emplace_back(part);
    if (files.back().find_integer("split.no") != index)
      files.back().reject("split.no", std::to_string(index));
    if (files.back().find_integer("split.count") != num_files)
      files.back().reject("split.count", std::to_string(num_files));
  }
  size_t num_tensors = 0;
  for (const GgufFile& file : files) num_tensors += file.header().tensors.size();
  if (const auto stated = files[0].find_integer("split.tensors.count");
      stated && *stated != static_cast<int64_t>(num_tensors))
    files[0].reject("split.tensors.count",
                    std::to_string(num_tensors) + ", the number of tensors in all parts");
  return files;
}

}  // namespace attend
