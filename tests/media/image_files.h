// Image files of tests/data/images and their pixels.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "attend/checkpoint/hf/safetensors.h"
#include "attend/media/image.h"

namespace attend::test {

inline std::filesystem::path image_folder() {
  return std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/data/images";
}

inline std::vector<std::byte> read_image_file(const std::string& name) {
  std::ifstream file(image_folder() / name, std::ios::binary);
  std::vector<std::byte> bytes;
  for (std::istreambuf_iterator<char> i(file), end; i != end; ++i)
    bytes.push_back(static_cast<std::byte>(*i));
  return bytes;
}

// Returns a golden's pixels, uint8 [height, width, 3].
inline Image golden_image(const SafetensorsFile& goldens, const std::string& name) {
  const Tensor tensor = goldens.tensor(name);
  const View<const uint8_t> bytes = tensor.span<const uint8_t>();
  return {.width = static_cast<int>(tensor.shape(1)),
          .height = static_cast<int>(tensor.shape(0)),
          .pixels = {bytes.begin(), bytes.end()}};
}

}  // namespace attend::test
