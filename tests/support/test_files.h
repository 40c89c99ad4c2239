// Files and expected errors of tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "attend/base/error.h"

namespace attend::test {

// Folder that is deleted at the end of the test.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "attend_model_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    const std::filesystem::path file = path_ / name;
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file;
  }

 private:
  std::filesystem::path path_;
};

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

// Returns a safetensors file with this header and data, valid or not.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);  // little-endian, like every machine that runs the tests
  return bytes.append(header).append(data);
}

struct TestTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string data;
};

// Tensor of zeros, of a dtype of two or four bytes.
inline TestTensor make_tensor(const std::string& name, std::vector<int64_t> shape,
                              const std::string& dtype = "F16") {
  size_t num_bytes = dtype == "F32" ? 4 : 2;
  for (const int64_t extent : shape) num_bytes *= static_cast<size_t>(extent);
  return {name, dtype, std::move(shape), std::string(num_bytes, '\0')};
}

// Returns a valid file.
inline std::string safetensors_bytes(std::span<const TestTensor> tensors) {
  std::ostringstream header;
  std::string data;
  header << '{';
  for (const TestTensor& tensor : tensors) {
    header << (&tensor == tensors.data() ? "" : ",") << '"' << tensor.name << R"(":{"dtype":")"
           << tensor.dtype << R"(","shape":[)";
    for (size_t i = 0; i < tensor.shape.size(); ++i) header << (i ? "," : "") << tensor.shape[i];
    header << R"(],"data_offsets":[)" << data.size() << ',' << data.size() + tensor.data.size() << "]}";
    data += tensor.data;
  }
  header << '}';
  std::string text = header.str();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // padding that writers use to align the data
  return safetensors_bytes(text, data);
}

// Expects an Error with this code and a message that contains every part.
template <class Fn>
void expect_error(ErrorCode code, std::initializer_list<std::string_view> parts, Fn&& fn) {
  try {
    fn();
    ADD_FAILURE() << "no error; expected " << to_string(code);
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    for (const std::string_view part : parts)
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::string(part)));
  }
}

}  // namespace attend::test
