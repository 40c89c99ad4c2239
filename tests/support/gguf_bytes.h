// GGUF files of tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace attend::test {

// Writes metadata and tensors in the order of the calls.
class GgufBytes {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;

  template <class T>
  static std::string raw(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
  static std::string text(std::string_view value) { return raw(uint64_t{value.size()}) + std::string(value); }
  // Number of a type of metadata values.
  template <class T>
  static uint32_t type_number() {
    if constexpr (std::is_same_v<T, uint32_t>) return 4;
    if constexpr (std::is_same_v<T, int32_t>) return 5;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, uint64_t>) return 10;
    if constexpr (std::is_same_v<T, uint16_t>) return 2;
    if constexpr (std::is_same_v<T, uint8_t>) return 0;
  }

  GgufBytes& field(std::string_view key, uint32_t type, const std::string& value) {
    fields_.push_back(text(key) + raw(type) + value);
    return *this;
  }
  template <class T>
  requires std::is_arithmetic_v<T> GgufBytes& add(std::string_view key, T value) {
    return field(key, type_number<T>(), raw(value));
  }
  GgufBytes& add(std::string_view key, std::string_view value) { return field(key, 8, text(value)); }
  GgufBytes& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  template <class T>
  GgufBytes& add(std::string_view key, const std::vector<T>& values) {
    std::string bytes;
    if constexpr (std::is_same_v<T, std::string>)
      for (const T& value : values) bytes += text(value);
    else
      for (const T value : values) bytes += raw(value);
    uint32_t type = 8;
    if constexpr (!std::is_same_v<T, std::string>) type = type_number<T>();
    return field(key, 9, raw(type) + raw(uint64_t{values.size()}) + bytes);
  }
  // `extents`: contiguous one first, as in files.
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& extents, uint32_t type,
                    const std::string& data) {
    return tensor_at(name, extents, type, data_.size(), data);
  }
  GgufBytes& tensor_at(std::string_view name, const std::vector<uint64_t>& extents, uint32_t type,
                       uint64_t offset, const std::string& data) {
    std::string info = text(name) + raw(static_cast<uint32_t>(extents.size()));
    for (const uint64_t extent : extents) info += raw(extent);
    tensors_.push_back(info + raw(type) + raw(offset));
    data_ += data;
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }

  std::string header() const {
    std::string bytes =
        "GGUF" + raw(version) + raw(uint64_t{tensors_.size()}) + raw(uint64_t{fields_.size()});
    for (const std::string& field : fields_) bytes += field;
    for (const std::string& tensor : tensors_) bytes += tensor;
    return bytes;
  }
  std::string bytes() const {
    std::string bytes = header();
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
    return bytes + data_;
  }

 private:
  std::vector<std::string> fields_, tensors_;
  std::string data_;
};

}  // namespace attend::test
