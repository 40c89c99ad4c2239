#include "attend/checkpoint/gguf/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <unordered_set>

#include "attend/base/error.h"
#include "attend/checkpoint/parse_json.h"

namespace attend {
namespace {

constexpr uint32_t kMinVersion = 2, kMaxVersion = 3;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kDefaultAlignment = 32, kMinAlignment = 8, kMaxAlignment = 1 << 20;
constexpr const char* kAlignmentKey = "general.alignment";
// A field has a length, a type and a value; a tensor has a length, a rank, a type and an offset.
constexpr uint64_t kMinFieldBytes = 13, kMinTensorBytes = 24;

// Thrown if the header continues after the bytes that were read; never leaves this file.
struct Incomplete {};

constexpr int kNumValueTypes = 13;
// Bytes of a number, indexed by GgufValueType; 0: strings and arrays.
constexpr uint64_t kValueBytes[kNumValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

class HeaderParser {
 public:
  HeaderParser(std::string_view bytes, uint64_t file_bytes, const std::string& file)
      : bytes_(bytes), file_bytes_(file_bytes), file_(file) {}

  GgufHeader parse() {
    if (take(4, "magic") != "GGUF")
      fail(ErrorCode::kCorruptFile, file_, ": magic ", excerpt(std::string(bytes_.substr(0, 4))),
           ": expected \"GGUF\"");
    GgufHeader header;
    header.version = number<uint32_t>("version");
    check_version(header.version);
    const uint64_t num_tensors = count("number of tensors", kMinTensorBytes);
    const uint64_t num_fields = count("number of metadata fields", kMinFieldBytes);
    for (uint64_t i = 0; i < num_fields; ++i) header.fields.push_back(read_field(i));
    for (uint64_t i = 0; i < num_tensors; ++i) header.tensors.push_back(read_tensor(i));
    place_tensors(header);
    return header;
  }

 private:
  template <class... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail(ErrorCode::kCorruptFile, file_, ": ", parts...);
  }

  std::string_view take(uint64_t num_bytes, std::string_view what) {
    if (num_bytes > file_bytes_ - position_)
      corrupt(what, " at byte ", position_, ": ", num_bytes, " bytes: the file has ", file_bytes_ - position_,
              " more (is it truncated?)");
    if (num_bytes > bytes_.size() - position_) throw Incomplete();
    const std::string_view taken = bytes_.substr(position_, num_bytes);
    position_ += num_bytes;
    return taken;
  }
  template <class T>
  T number(std::string_view what) {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  // Number of items of at least `item_bytes`.
  uint64_t count(const std::string& what, uint64_t item_bytes) {
    const auto value = number<uint64_t>(what);
    if (value > (file_bytes_ - position_) / item_bytes)
      corrupt(what, " ", value, ": the file has ", file_bytes_ - position_, " more bytes, and each needs ",
              item_bytes, " or more");
    return value;
  }
  std::string_view text(const std::string& what) { return take(number<uint64_t>(what), what); }

  void check_version(uint32_t version) const {
    if (version >= kMinVersion && version <= kMaxVersion) return;
    const bool swapped = (version & 0xffffu) == 0;
    fail(ErrorCode::kUnsupported, file_, ": version ", version, ": attend supports ", kMinVersion, " and ",
         kMaxVersion, swapped ? "; this file is big-endian" : "");
  }

  GgufValueType value_type(const std::string& what) {
    const auto type = number<uint32_t>(what + ": type");
    if (type >= kNumValueTypes) corrupt(what, ": type ", type, ": expected 0 to ", kNumValueTypes - 1);
    return static_cast<GgufValueType>(type);
  }

  GgufField read_field(uint64_t index) {
    const std::string_view key = text("metadata field " + std::to_string(index));
    const std::string what = "metadata " + excerpt(std::string(key));
    if (key.empty()) corrupt("metadata field ", index, ": an empty key");
    if (!names_.insert(key).second) corrupt(what, ": occurs twice");
    const GgufValueType type = value_type(what);
    GgufField field{.key = key, .value = read_value(type, what)};
    if (key == kAlignmentKey) set_alignment(field.value);
    return field;
  }

  template <class T>
  GgufValue integer(const std::string& what) {
    const T value = number<T>(what);
    if constexpr (std::is_same_v<T, uint64_t>)
      if (value > uint64_t{INT64_MAX}) return value;
    return static_cast<int64_t>(value);
  }

  GgufValue read_value(GgufValueType type, const std::string& what) {
    switch (type) {
      case GgufValueType::kU8:
        return integer<uint8_t>(what);
      case GgufValueType::kI8:
        return integer<int8_t>(what);
      case GgufValueType::kU16:
        return integer<uint16_t>(what);
      case GgufValueType::kI16:
        return integer<int16_t>(what);
      case GgufValueType::kU32:
        return integer<uint32_t>(what);
      case GgufValueType::kI32:
        return integer<int32_t>(what);
      case GgufValueType::kU64:
        return integer<uint64_t>(what);
      case GgufValueType::kI64:
        return integer<int64_t>(what);
      case GgufValueType::kF32:
        return static_cast<double>(number<float>(what));
      case GgufValueType::kF64:
        return number<double>(what);
      case GgufValueType::kBool: {
        const auto value = number<uint8_t>(what);
        if (value > 1) corrupt(what, ": boolean ", int{value}, ": expected 0 or 1");
        return value == 1;
      }
      case GgufValueType::kString:
        return text(what);
      case GgufValueType::kArray:
        return read_array(what);
    }
    corrupt(what, ": unknown type");
  }

  GgufArray read_array(const std::string& what) {
    GgufArray array{.type = value_type(what + ": elements")};
    if (array.type == GgufValueType::kArray)
      fail(ErrorCode::kUnsupported, file_, ": ", what, ": attend does not support arrays of arrays");
    const bool has_strings = array.type == GgufValueType::kString;
    const uint64_t element_bytes = kValueBytes[static_cast<size_t>(array.type)];
    array.size = count(what + ": number of elements", has_strings ? sizeof(uint64_t) : element_bytes);
    if (!has_strings) {
      array.bytes = take(array.size * element_bytes, what);
      return array;
    }
    // The capacity is at most twice the bytes of the lengths, which were compared with the file's size.
    for (uint64_t i = 0; i < array.size; ++i) array.strings.push_back(text(what));
    return array;
  }

  void set_alignment(const GgufValue& value) {
    const int64_t* const alignment = std::get_if<int64_t>(&value);
    if (alignment == nullptr || *alignment < int64_t{kMinAlignment} || *alignment > int64_t{kMaxAlignment} ||
        !std::has_single_bit(static_cast<uint64_t>(*alignment)))
      corrupt("metadata \"", kAlignmentKey, "\"", alignment == nullptr ? "" : " ",
              alignment == nullptr ? "" : std::to_string(*alignment), ": expected a power of two from ",
              kMinAlignment, " to ", kMaxAlignment);
    alignment_ = static_cast<uint64_t>(*alignment);
  }

  GgufTensorInfo read_tensor(uint64_t index) {
    GgufTensorInfo tensor{.name = text("name of tensor " + std::to_string(index))};
    const std::string what = "tensor " + excerpt(std::string(tensor.name));
    if (!tensor_names_.insert(tensor.name).second) corrupt(what, ": occurs twice");
    const auto num_dims = number<uint32_t>(what + ": number of dimensions");
    if (num_dims < 1 || num_dims > kMaxDims)
      corrupt(what, ": ", num_dims, " dimensions: expected 1 to ", kMaxDims);
    uint64_t num_elements = 1;
    for (uint32_t i = 0; i < num_dims; ++i) {
      const auto extent = number<uint64_t>(what + ": dimension");
      if (extent == 0 || extent > uint64_t{INT64_MAX} ||
          __builtin_mul_overflow(num_elements, extent, &num_elements))
        corrupt(what, ": dimension ", i, " of ", extent,
                ": expected 1 or more, and fewer than 2^63 elements");
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
    }
    const auto type = number<uint32_t>(what + ": type");
    tensor.type = find_gguf_tensor_type(type);
    if (tensor.type == nullptr)
      corrupt(what, ": type ", type, ": attend supports ", supported_gguf_tensor_types());
    const auto block_elements = static_cast<uint64_t>(tensor.type->block_elements);
    const auto block_bytes = static_cast<uint64_t>(tensor.type->block_bytes);
    if (static_cast<uint64_t>(tensor.shape.back()) % block_elements != 0)
      corrupt(what, ": dimension 0 of ", tensor.shape.back(), ": expected a multiple of ", block_elements,
              ", the block of ", tensor.type->name);
    tensor.begin = number<uint64_t>(what + ": offset");
    uint64_t num_bytes = 0;
    if (__builtin_mul_overflow(num_elements / block_elements, block_bytes, &num_bytes) ||
        __builtin_add_overflow(tensor.begin, num_bytes, &tensor.end))
      corrupt(what, ": offset ", tensor.begin, " and ", num_elements, " elements of ", tensor.type->name,
              ": more than 2^64 bytes");
    return tensor;
  }

  // Checks offsets against the data, which begins after the header.
  void place_tensors(GgufHeader& header) const {
    header.data_begin = (position_ + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t data_bytes = file_bytes_ - std::min(file_bytes_, header.data_begin);
    std::ranges::sort(header.tensors, {}, [](const GgufTensorInfo& tensor) { return tensor.begin; });
    const GgufTensorInfo* previous = nullptr;
    for (const GgufTensorInfo& tensor : header.tensors) {
      const std::string what = "tensor " + excerpt(std::string(tensor.name));
      if (tensor.begin % alignment_ != 0)
        corrupt(what, ": offset ", tensor.begin, ": expected a multiple of the alignment ", alignment_);
      if (tensor.end > data_bytes)
        corrupt(what, ": bytes ", tensor.begin, " to ", tensor.end, ": the file has ", data_bytes,
                " bytes of data (is it truncated?)");
      if (previous != nullptr && tensor.begin < previous->end)
        corrupt(what, ": bytes ", tensor.begin, " to ", tensor.end, " overlap tensor ",
                excerpt(std::string(previous->name)), " (", previous->begin, " to ", previous->end, ")");
      previous = &tensor;
    }
  }

  std::string_view bytes_;
  uint64_t file_bytes_;
  const std::string& file_;
  uint64_t position_ = 0, alignment_ = kDefaultAlignment;
  std::unordered_set<std::string_view> names_, tensor_names_;
};

}  // namespace

std::optional<GgufHeader> parse_gguf_header(std::string_view bytes, uint64_t file_bytes,
                                            const std::string& file) {
  try {
    return HeaderParser(bytes, file_bytes, file).parse();
  } catch (const Incomplete&) {
    return std::nullopt;
  }
}

}  // namespace attend
