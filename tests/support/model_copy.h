// Copy of a model directory with other weights.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "attend/checkpoint/hf/safetensors.h"
#include "tests/support/test_files.h"

namespace attend::test {

class ModelCopy {
 public:
  explicit ModelCopy(const std::filesystem::path& from) {
    for (const auto& file : std::filesystem::directory_iterator(from)) {
      const std::string name = file.path().filename();
      if (name == "golden.safetensors") continue;
      std::filesystem::copy_file(file.path(), path() / name);
      std::filesystem::permissions(path() / name, std::filesystem::perms::owner_write,
                                   std::filesystem::perm_options::add);
    }
    if (!std::filesystem::exists(path() / "model.safetensors")) return;
    const SafetensorsFile file(from / "model.safetensors");
    for (const TensorEntry& entry : file.entries())
      tensors.push_back({entry.name, entry.dtype_name, entry.shape, file.read(entry)});
  }

  const std::filesystem::path& path() const { return folder_.path(); }
  // First tensor with this ending of its name.
  TestTensor& tensor(std::string_view ending) {
    return *std::ranges::find_if(tensors, [&](const TestTensor& one) { return one.name.ends_with(ending); });
  }
  // Moves each row of the embedding to the next token: a model of the same shapes with other answers.
  ModelCopy& rotate_embedding(int64_t num_tokens = 1) {
    TestTensor& table = tensor("embed_tokens.weight");
    const auto row_bytes = static_cast<std::ptrdiff_t>(table.data.size()) / table.shape[0];
    std::ranges::rotate(table.data, table.data.begin() + num_tokens * row_bytes);
    return write();
  }
  // Writes the tensors to another file that replaces the old one, which stays mapped where it is in use.
  ModelCopy& write() {
    folder_.write("new", safetensors_bytes(tensors));
    std::filesystem::rename(path() / "new", path() / "model.safetensors");
    return *this;
  }
  // Replaces a text in config.json.
  ModelCopy& edit_config(std::string_view from, std::string_view to) {
    std::ifstream file(path() / "config.json");
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t position = text.find(from);
    if (position == std::string::npos) throw std::runtime_error("config.json has no " + std::string(from));
    text.replace(position, from.size(), to);
    folder_.write("config.json", text);
    return *this;
  }

  std::vector<TestTensor> tensors;

 private:
  TempDir folder_;
};

}  // namespace attend::test
