// Model with finite weights. Its attention scores overflow for prompts with a certain token.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace attend::testing_support {

// Changes float32 tensors of a safetensors file with fn(name, row, column, value).
inline void change_weights(const std::filesystem::path& file,
                           const std::function<void(const std::string&, int64_t, int64_t, float&)>& fn) {
  std::ifstream in(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const size_t data_begin = sizeof header_bytes + header_bytes;
  const auto header = nlohmann::json::parse(bytes.substr(sizeof header_bytes, header_bytes));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto begin = entry.at("data_offsets")[0].get<size_t>();
    const auto end = entry.at("data_offsets")[1].get<size_t>();
    char* const data = bytes.data() + data_begin + begin;
    const int64_t columns = entry.at("shape").back();
    for (int64_t i = 0; i < static_cast<int64_t>((end - begin) / sizeof(float)); ++i) {
      float value;
      std::memcpy(&value, data + i * int64_t{sizeof value}, sizeof value);
      fn(name, i / columns, i % columns, value);
      std::memcpy(data + i * int64_t{sizeof value}, &value, sizeof value);
    }
  }
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

// Copies a float32 model to `folder` such that prompts with `token_id` have NaN logits and others do not.
// Only this token has the hidden feature that q and k of the first layer multiply by 1e25, so that their
// product overflows.
inline void make_overflowing_model(const std::filesystem::path& model, const std::filesystem::path& folder,
                                   int32_t token_id) {
  std::filesystem::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(model / name, folder / name,
                               std::filesystem::copy_options::overwrite_existing);
  change_weights(folder / "model.safetensors", [&](const std::string& name, int64_t row, int64_t column,
                                                   float& value) {
    if (column != 0) return;
    if (name == "model.embed_tokens.weight") value = row == token_id ? 1.0f : 0.0f;
    if (name == "model.layers.0.self_attn.q_proj.weight" || name == "model.layers.0.self_attn.k_proj.weight")
      value = 1e25f;
  });
}

}  // namespace attend::testing_support
