#include "attend/checkpoint/hf/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>

#include "attend/base/error.h"
#include "attend/checkpoint/json.h"

namespace attend {
namespace {

struct FormatDType {
  std::string_view name;
  unsigned bits;
  std::optional<DType> dtype;
};

// All dtypes of the format; a model may contain tensors with dtypes that attend does not support.
constexpr std::array<FormatDType, 22> kFormatDTypes{{
    {"F32", 32, DType::kF32},         {"F16", 16, DType::kF16},       {"BF16", 16, DType::kBF16},
    {"F8_E4M3", 8, DType::kF8E4M3},   {"F8_E5M2", 8, DType::kF8E5M2}, {"I32", 32, DType::kI32},
    {"I64", 64, DType::kI64},         {"U8", 8, DType::kU8},          {"U64", 64, DType::kU64},
    {"BOOL", 8, std::nullopt},        {"I8", 8, DType::kI8},          {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},        {"U32", 32, std::nullopt},      {"F64", 64, std::nullopt},
    {"C64", 64, std::nullopt},        {"F4", 4, std::nullopt},        {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},     {"F8_E8M0", 8, std::nullopt},   {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
}};

// Reads and validates one entry of the header.
class EntryReader {
 public:
  EntryReader(const std::string& file, const std::string& name, const Json& fields)
      : file_(file), name_(name), fields_(fields) {
    if (!fields.is_object()) reject(excerpt(fields), "expected an object");
  }

  TensorEntry read(uint64_t data_bytes) const {
    TensorEntry entry;
    entry.name = name_;
    const FormatDType& format = read_dtype();
    entry.dtype_name = format.name;
    entry.dtype = format.dtype;
    entry.shape = read_shape();
    read_offsets(data_bytes, entry);
    check_size(format, entry);
    return entry;
  }

 private:
  template <class Value>
  [[noreturn]] void reject(const Value& value, std::string_view expected) const {
    fail(ErrorCode::kCorruptFile, file_, ": tensor \"", name_, "\": ", value, ": ", expected);
  }

  const Json& field(const char* key) const {
    const auto found = fields_.find(key);
    if (found == fields_.end()) reject(key, "is missing");
    return *found;
  }

  const FormatDType& read_dtype() const {
    const Json& value = field("dtype");
    for (const FormatDType& format : kFormatDTypes)
      if (is_string(value, format.name)) return format;
    std::string names;
    for (const FormatDType& format : kFormatDTypes)
      names += (names.empty() ? "" : ", ") + std::string(format.name);
    reject("dtype " + excerpt(value), "expected one of " + names);
  }

  std::vector<int64_t> read_shape() const {
    const Json& value = field("shape");
    if (!value.is_array()) reject("shape " + excerpt(value), "expected an array of sizes");
    std::vector<int64_t> shape;
    for (const Json& extent : value) {
      if (!extent.is_number_unsigned() || extent.get<uint64_t>() > uint64_t{INT64_MAX})
        reject("shape " + excerpt(value), "expected sizes from 0 to 2^63 - 1");
      shape.push_back(extent.get<int64_t>());
    }
    return shape;
  }

  void read_offsets(uint64_t data_bytes, TensorEntry& entry) const {
    const Json& value = field("data_offsets");
    if (!value.is_array() || value.size() != 2 || !value[0].is_number_unsigned() ||
        !value[1].is_number_unsigned())
      reject("data_offsets " + excerpt(value), "expected [begin, end] in bytes");
    entry.begin = value[0].get<uint64_t>();
    entry.end = value[1].get<uint64_t>();
    if (entry.begin > entry.end || entry.end > data_bytes)
      reject("data_offsets " + excerpt(value), "expected begin <= end <= " + std::to_string(data_bytes) +
                                                   ", the bytes of data in the file (is it truncated?)");
  }

  void check_size(const FormatDType& format, const TensorEntry& entry) const {
    // Strides must be representable even if an extent of 0 leaves no elements.
    uint64_t bits = format.bits;
    bool overflow = false;
    for (int64_t extent : entry.shape)
      overflow |= __builtin_mul_overflow(bits, static_cast<uint64_t>(std::max<int64_t>(1, extent)), &bits);
    if (std::ranges::find(entry.shape, 0) != entry.shape.end()) bits = 0;
    if (!overflow && bits % 8 == 0 && bits / 8 == entry.end - entry.begin) return;
    const std::string wanted =
        overflow ? "more than 2^64" : std::to_string(bits / 8) + (bits % 8 != 0 ? " and a part" : "");
    reject(
        "data_offsets " + excerpt(field("data_offsets")),
        "dtype " + entry.dtype_name + " and shape " + excerpt(field("shape")) + " need " + wanted + " bytes");
  }

  const std::string& file_;
  const std::string& name_;
  const Json& fields_;
};

void check_metadata(const Json& metadata, const std::string& file) {
  bool strings = metadata.is_object();
  if (strings)
    for (const Json& value : metadata) strings = strings && value.is_string();
  if (!strings)
    fail(ErrorCode::kCorruptFile, file, ": __metadata__ ", excerpt(metadata),
         ": expected an object of strings");
}

// The format has no holes: each tensor begins at the end of the previous one.
void check_coverage(const std::vector<TensorEntry>& entries, uint64_t data_bytes, const std::string& file) {
  uint64_t covered = 0;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry& entry : entries) {
    if (entry.begin < covered)
      fail(ErrorCode::kCorruptFile, file, ": tensor \"", entry.name, "\": bytes ", entry.begin, " to ",
           entry.end, " overlap tensor \"", previous->name, "\" (", previous->begin, " to ", previous->end,
           ")");
    if (entry.begin > covered)
      fail(ErrorCode::kCorruptFile, file, ": tensor \"", entry.name, "\": bytes ", covered, " to ",
           entry.begin, " before it belong to no tensor");
    covered = entry.end;
    previous = &entry;
  }
  if (covered != data_bytes)
    fail(ErrorCode::kCorruptFile, file, ": ", data_bytes, " bytes of data: the tensors end at ", covered);
}

}  // namespace

std::vector<TensorEntry> parse_safetensors_header(std::string_view header, uint64_t data_bytes,
                                                  const std::string& file) {
  const Json json = parse_json(header, file + ": header");
  if (!json.is_object())
    fail(ErrorCode::kCorruptFile, file, ": header ", excerpt(json), ": expected a JSON object");
  std::vector<TensorEntry> entries;
  for (const auto& [name, fields] : json.items()) {
    if (name == "__metadata__")
      check_metadata(fields, file);
    else
      entries.push_back(EntryReader(file, name, fields).read(data_bytes));
  }
  // A tensor without elements has the same offset as the next one.
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  check_coverage(entries, data_bytes, file);
  return entries;
}

}  // namespace attend
