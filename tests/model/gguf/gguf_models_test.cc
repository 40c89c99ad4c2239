// A model in a GGUF file computes the same logits as in a Hugging Face folder with the same weights, for
// every architecture and type of tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/hf/safetensors.h"
#include "attend/kernels/common/decode_blocks.h"
#include "tests/model/gguf/gguf_architectures.h"

namespace attend::test {
namespace {

using nlohmann::json;

class GgufModels : public testing::TestWithParam<size_t> {
 protected:
  static GgufArchitecture architecture() { return architectures()[GetParam()]; }
};

TEST_P(GgufModels, MatchTheFolderWithTheSameWeights) {
  const GgufArchitecture one = architecture();
  // Rows in another order are summed in another order.
  expect_equal_logits(one, {{kF32}}, one.permutes_qk ? 2e-5f : 0.0f);
}

TEST_P(GgufModels, MatchTheFolderWithDequantizedWeights) {
  expect_equal_logits(architecture(), {{kF16, kBF16, 12, 14, 8, 13, 2}}, 5e-5f);
}

INSTANTIATE_TEST_SUITE_P(Architectures, GgufModels, testing::Range(size_t{0}, architectures().size()));

TEST(GgufModel, MatchesTheFolderForEveryTypeOfTensor) {
  for (const BlockType& type : kBlockTypes) {
    SCOPED_TRACE(block_layout(type.format).name);
    expect_equal_logits(plain_qwen3(), {{type.number}}, 5e-5f);
  }
}

// Activations in int8 have errors of at most max |x| / 254 of their 32 inputs, which are uniform: relative to
// inputs with a normal distribution (max |x| of 2.1 standard deviations) 0.5 %, with outliers of 4 standard
// deviations 0.9 %. The longest path through two layers and the head has nine products, whose errors are
// independent.
TEST(GgufModel, RoundsActivationsToInt8WithinTheirError) {
  const json config = hf_config(plain_qwen3());
  for (const BlockType& type : kBlockTypes) {
    SCOPED_TRACE(block_layout(type.format).name);
    const std::map<std::string, Values> weights = random_weights(config, {{type.number}});
    GgufBytes file = gguf_metadata(plain_qwen3(), config);
    add_tensors(plain_qwen3(), config, weights, file);
    const TempDir dir;
    const std::filesystem::path path = dir.write("model.gguf", file.bytes());
    const Tensor expected = logits(path), got = logits(path, {.rounds_x = true});
    const Tensor again = logits(path, {.batch_invariant = true, .rounds_x = true});
    double error = 0.0, square = 0.0;
    for (int64_t i = 0; i < got.view().num_elements(); ++i) {
      const double value = expected.as<const float>()[i], difference = got.as<const float>()[i] - value;
      square += value * value;
      error += difference * difference;
      EXPECT_TRUE(std::isfinite(again.as<const float>()[i]));
    }
    EXPECT_GT(error, 0.0);
    EXPECT_LE(std::sqrt(error / square), 0.009 * std::sqrt(9.0));
  }
}

// Blocks and elements that scripts/make_gguf_goldens.py wrote with gguf-py.
TEST(GgufModel, DequantizesEveryTypeLikeGgufPy) {
  const SafetensorsFile golden(ATTEND_SOURCE_DIR "/tests/data/gguf/blocks.safetensors");
  for (const BlockType& type : kBlockTypes) {
    const std::string name(block_layout(type.format).name);
    const Tensor blocks = golden.tensor(name + ".blocks"), expected = golden.tensor(name + ".elements");
    std::vector<float> elements(static_cast<size_t>(expected.view().num_elements()));
    kernels::decode_blocks(type.format, blocks.as<const uint8_t>(), std::ssize(elements), elements.data());
    for (size_t i = 0; i < elements.size(); ++i)
      ASSERT_EQ(elements[i], expected.as<const float>()[i]) << name << ", element " << i;
  }
}

TEST(GgufModel, AppliesFactorsOfRotaryFrequencies) {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 32}};
  // Factors of transformers for these values and a theta of 5000.
  std::vector<float> factors;
  for (int i = 0; i < 16; ++i) {
    const double wavelength = 2.0 * M_PI * std::pow(5000.0, i / 16.0);
    const double smooth = (32.0 / wavelength - 1.0) / (4.0 - 1.0);
    const double factor = wavelength < 32.0 / 4.0 ? 1.0
                          : wavelength > 32.0     ? 8.0
                                                  : 1.0 / ((1.0 - smooth) / 8.0 + smooth);
    factors.push_back(static_cast<float>(factor));
  }
  expect_equal_logits(
      {.name = "llama",
       .hf = "LlamaForCausalLM",
       .fields = {{"rope_scaling", llama3}},
       .metadata = [&](GgufBytes& file,
                       const json&) { file.tensor("rope_freqs.weight", {16}, kF32, raw_bytes(factors)); },
       .permutes_qk = true},
      {{kF32}}, 2e-5f);
}

// Bytes of a float32 tensor: each `step`-th column from `first`, with the last two dimensions transposed or
// not.
std::string last_dim_bytes(const Tensor& tensor, int64_t first, int64_t step, bool transposes) {
  const int64_t columns = tensor.shape(tensor.view().rank - 1);
  const int64_t rows = transposes ? tensor.shape(tensor.view().rank - 2) : 1;
  const int64_t matrices = tensor.view().num_elements() / rows / columns;
  std::string bytes;
  for (int64_t matrix = 0; matrix < matrices; ++matrix)
    for (int64_t column = first; column < columns; column += step)
      for (int64_t row = 0; row < rows; ++row)
        bytes += GgufBytes::raw(tensor.as<const float>()[(matrix * rows + row) * columns + column]);
  return bytes;
}

// In Hugging Face's files, the experts of gpt-oss share a tensor with alternating columns of gate and up.
TEST(GgufModel, MatchesGptOssWithSeparateGateAndUp) {
  const std::filesystem::path golden = ATTEND_SOURCE_DIR "/tests/goldens/gpt-oss-sinks-window";
  json config = json::parse(std::ifstream(golden / "config.json"));
  config.erase("swiglu_limit");  // not in the metadata of GGUF files
  const TempDir dir;
  dir.write("config.json", config.dump());
  std::filesystem::copy_file(golden / "model.safetensors", dir.path() / "model.safetensors");
  const GgufArchitecture gpt_oss{.name = "gpt-oss",
                                 .hf = "GptOssForCausalLM",
                                 .fields = json::object(),
                                 .metadata =
                                     [](GgufBytes& file, const json& fields) {
                                       const json& rope = fields["rope_scaling"];
                                       file.add("gpt-oss.attention.sliding_window", uint32_t{16});
                                       file.add("gpt-oss.rope.scaling.type", "yarn");
                                       file.add("gpt-oss.rope.scaling.factor", rope["factor"].get<float>());
                                       file.add("gpt-oss.rope.scaling.original_context_length", uint32_t{32});
                                     },
                                 .names = {{"mlp.router", "ffn_gate_inp"},
                                           {"post_attention_layernorm", "post_attention_norm"},
                                           {"self_attn.sinks", "attn_sinks.weight"}}};
  GgufBytes file = gguf_metadata(gpt_oss, config);
  const auto tensors = open_checkpoint(dir.path())->open_tensors();
  for (const std::string& name : tensors->names()) {
    const Tensor tensor = tensors->tensor(name);
    const size_t experts = name.find("mlp.experts.");
    std::vector<uint64_t> extents;
    for (int dim = tensor.view().rank - 1; dim >= 0; --dim)
      extents.push_back(static_cast<uint64_t>(tensor.shape(dim)));
    if (experts == std::string::npos) {
      file.tensor(gguf_name(gpt_oss, name), extents, kF32, last_dim_bytes(tensor, 0, 1, false));
      continue;
    }
    const std::string layer = gguf_name(gpt_oss, name.substr(0, experts));
    const bool is_bias = name.ends_with("_bias"), is_down = name.find("down_proj") != std::string::npos;
    const std::string ending = is_bias ? "_exps.bias" : "_exps.weight";
    if (!is_bias) std::swap(extents[0], extents[1]);
    if (is_down) {
      file.tensor(layer + "ffn_down" + ending, extents, kF32, last_dim_bytes(tensor, 0, 1, !is_bias));
      continue;
    }
    extents[is_bias ? 0 : 1] /= 2;
    file.tensor(layer + "ffn_gate" + ending, extents, kF32, last_dim_bytes(tensor, 0, 2, !is_bias));
    file.tensor(layer + "ffn_up" + ending, extents, kF32, last_dim_bytes(tensor, 1, 2, !is_bias));
  }
  // On some instruction sets, rows of gate and up are summed in another order if they alternate.
  expect_close(logits(dir.path()), logits(dir.write("model.gguf", file.bytes())), 2e-5f);
}

TEST(GgufModel, ScalesRotaryFrequencies) {
  const auto expect_scaling = [](const json& scaling, std::function<void(GgufBytes&)> add) {
    SCOPED_TRACE(scaling.dump());
    expect_equal_logits({.name = "qwen3",
                         .hf = "Qwen3ForCausalLM",
                         .fields = {{"rope_scaling", scaling}},
                         .metadata = [&](GgufBytes& file, const json&) { add(file); }},
                        {{kF32}}, 0.0f);
  };
  const json linear = {{"rope_type", "linear"}, {"factor", 4.0}};
  expect_scaling(linear, [](GgufBytes& file) { file.add("qwen3.rope.scaling.factor", 4.0f); });
  expect_scaling(linear, [](GgufBytes& file) { file.add("qwen3.rope.scale_linear", 4.0f); });
  expect_scaling({{"rope_type", "default"}},
                 [](GgufBytes& file) { file.add("qwen3.rope.scaling.factor", 0.0f); });
  expect_scaling({{"rope_type", "yarn"},
                  {"factor", 4.0},
                  {"original_max_position_embeddings", 32},
                  {"beta_fast", 8.0},
                  {"beta_slow", 0.5}},
                 [](GgufBytes& file) {
                   file.add("qwen3.rope.scaling.type", "yarn").add("qwen3.rope.scaling.factor", 4.0f);
                   file.add("qwen3.rope.scaling.original_context_length", uint32_t{32});
                   file.add("qwen3.rope.scaling.yarn_beta_fast", 8.0f);
                   file.add("qwen3.rope.scaling.yarn_beta_slow", 0.5f);
                   file.add("qwen3.rope.scaling.yarn_ext_factor", 1.0f);
                 });
}

}  // namespace
}  // namespace attend::test
