// Writes models with random weights twice, as a GGUF file and as a Hugging Face folder with the values of its
// elements, and compares their logits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attend/model/model.h"
#include "attend/tensor/tensor.h"
#include "attend/tensor/weight.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/test_files.h"

namespace attend::test {

constexpr uint32_t kF32 = 0, kF16 = 1, kBF16 = 30;

// Blocks with these scales have elements of about 0.05.
struct BlockType {
  uint32_t number;
  BlockFormat format;
  std::vector<int> scale_offsets;  // f16
  float scale;
};
extern const std::vector<BlockType> kBlockTypes;

// A matrix or vector of the model: values, and bytes of its type in a GGUF file.
struct Values {
  std::vector<int64_t> shape;
  std::vector<float> values;
  uint32_t type = kF32;
  std::string bytes;

  size_t num_rows() const { return static_cast<size_t>(shape.size() == 1 ? 1 : shape[0]); }
};

template <class T>
std::string raw_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Types of a model's matrices, in turn. Vectors are float32.
struct TypeMix {
  std::vector<uint32_t> types;

  void fill(Values& matrix, size_t index, float mean, std::mt19937& random) const;
};

using Metadata = std::function<void(GgufBytes& file, const nlohmann::json& config)>;

struct GgufArchitecture {
  std::string name, hf;
  nlohmann::json fields;  // of config.nlohmann::json, next to the common ones
  Metadata metadata;      // next to the common one
  bool permutes_qk = false, adds_one = false;
  // Names in layers that differ from the common ones: Hugging Face's, GGUF's.
  std::vector<std::pair<std::string, std::string>> names = {};
};

// Returns a qwen3 without further fields.
GgufArchitecture plain_qwen3();

// Returns the name in a GGUF file. `name` has no number of an expert.
std::string gguf_name(const GgufArchitecture& architecture, std::string name);

nlohmann::json hf_config(const GgufArchitecture& architecture);
// Returns the weights of the model, by Hugging Face names.
std::map<std::string, Values> random_weights(const nlohmann::json& config, const TypeMix& mix);
GgufBytes gguf_metadata(const GgufArchitecture& architecture, const nlohmann::json& config);
void add_tensors(const GgufArchitecture& architecture, const nlohmann::json& config,
                 const std::map<std::string, Values>& weights, GgufBytes& file);

// Returns the logits of a prompt of 40 tokens.
Tensor logits(const std::filesystem::path& path, const ModelPlacement& placement = {});

// Expects equal values, up to `tolerance` relative to the largest one.
void expect_close(const Tensor& expected, const Tensor& got, float tolerance);

// Expects equal logits of both, up to `tolerance` relative to the largest one.
void expect_equal_logits(const GgufArchitecture& architecture, const TypeMix& mix, float tolerance);

}  // namespace attend::test
