// Commands with a GGUF file of the bundled model, converted as llama.cpp's tools convert it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "attend/checkpoint/checkpoint.h"
#include "tests/cli/run_command.h"
#include "tests/support/gguf_bytes.h"

namespace attend {
namespace {

using Json = nlohmann::json;
using test::GgufBytes;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace testing_support;

constexpr uint32_t kF32 = 0, kQ8_0 = 8, kBF16 = 30;

std::string read_text(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(kTinyModel + "/" + name).rdbuf();
  return text.str();
}

void add_metadata(GgufBytes& file) {
  const Json config = Json::parse(read_text("config.json"));
  const auto integer = [&](const char* key, const char* field) {
    file.add(std::string("llama.") + key, config[field].get<uint32_t>());
  };
  file.add("general.architecture", "llama");
  integer("block_count", "num_hidden_layers");
  integer("context_length", "max_position_embeddings");
  integer("embedding_length", "hidden_size");
  integer("feed_forward_length", "intermediate_size");
  integer("attention.head_count", "num_attention_heads");
  integer("attention.head_count_kv", "num_key_value_heads");
  integer("attention.key_length", "head_dim");
  file.add("llama.attention.layer_norm_rms_epsilon", config["rms_norm_eps"].get<float>());
  file.add("llama.rope.freq_base", config["rope_theta"].get<float>());
}

void add_tokenizer(GgufBytes& file) {
  const Json tokenizer = Json::parse(read_text("tokenizer.json"));
  std::map<int, std::pair<std::string, int32_t>> by_id;
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) by_id[id] = {token, 1};
  for (const Json& added : tokenizer["added_tokens"]) by_id[added["id"]] = {added["content"], 3};
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  for (const auto& [id, token] : by_id) {
    tokens.push_back(token.first);
    types.push_back(token.second);
  }
  for (const Json& merge : tokenizer["model"]["merges"])
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  file.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "llama-bpe");
  file.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types);
  file.add("tokenizer.ggml.merges", merges);
  file.add("tokenizer.ggml.bos_token_id", uint32_t{0}).add("tokenizer.ggml.eos_token_id", uint32_t{1});
  file.add("tokenizer.chat_template", read_text("chat_template.jinja"));
}

std::string gguf_name(std::string name) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"model.layers.", "blk."},
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.", "attn_"},
      {"mlp.", "ffn_"},
      {"_proj", ""}};
  for (const auto& [hf, gguf] : kNames)
    if (const size_t at = name.find(hf); at != std::string::npos) name.replace(at, hf.size(), gguf);
  return name;
}

// A block of Q8_0: the largest magnitude becomes 127.
std::string quantized(const std::vector<float>& values) {
  std::string bytes;
  for (size_t block = 0; block < values.size(); block += 32) {
    float largest = 0.0f;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[block + i]));
    const F16 scale(largest / 127.0f);
    bytes += GgufBytes::raw(scale.bits);
    const float divisor = std::max(static_cast<float>(scale), 1e-20f);
    for (size_t i = 0; i < 32; ++i)
      bytes += static_cast<char>(std::clamp(std::lround(values[block + i] / divisor), -127L, 127L));
  }
  return bytes;
}

// Writes the model with matrices of this type, and returns the file's path.
std::string write_model(const std::string& name, uint32_t type) {
  const auto tensors = open_checkpoint(kTinyModel)->open_tensors();
  GgufBytes file;
  add_metadata(file);
  add_tokenizer(file);
  for (const std::string& hf : tensors->names()) {
    const Tensor tensor = tensors->tensor(hf);
    const auto* const stored = tensor.as<const BF16>();
    const bool is_vector = tensor.view().rank == 1;
    const auto row_elements = static_cast<size_t>(is_vector ? 1 : tensor.shape(1));
    const bool is_qk = hf.find("q_proj") != std::string::npos || hf.find("k_proj") != std::string::npos;
    constexpr size_t kHeadDim = 64;
    std::vector<float> values;
    std::string bf16;
    for (size_t row = 0; row < static_cast<size_t>(tensor.shape(0)); ++row) {
      const size_t in_head = row % kHeadDim;
      const size_t from = is_qk ? row - in_head + in_head % 2 * (kHeadDim / 2) + in_head / 2 : row;
      for (size_t i = 0; i < row_elements; ++i) {
        values.push_back(static_cast<float>(stored[from * row_elements + i]));
        bf16 += GgufBytes::raw(stored[from * row_elements + i].bits);
      }
    }
    std::vector<uint64_t> extents;
    if (!is_vector) extents.push_back(row_elements);
    extents.push_back(static_cast<uint64_t>(tensor.shape(0)));
    if (is_vector) {
      std::string bytes;
      for (const float value : values) bytes += GgufBytes::raw(value);
      file.tensor(gguf_name(hf), extents, kF32, bytes);
    } else {
      file.tensor(gguf_name(hf), extents, type, type == kQ8_0 ? quantized(values) : bf16);
    }
  }
  return write_file(name, file.bytes());
}

class GgufCommand : public testing::Test {
 protected:
  void TearDown() override {
    std::filesystem::remove(plain_);
    std::filesystem::remove(quantized_);
  }

  const std::string plain_ = write_model("bf16.gguf", kBF16), quantized_ = write_model("q8_0.gguf", kQ8_0);
};

const std::string kRecallPrompt = " -p 'recall: sun=42, river=17, fox=80; river=' -n 4 --temp 0";

TEST_F(GgufCommand, GenerateWritesTheTextOfTheOriginalModel) {
  const std::string expected = attend("generate -m " + kTinyModel + kRecallPrompt, Streams::kStdout).out;
  EXPECT_THAT(expected, HasSubstr("17"));
  for (const std::string& file : {plain_, quantized_}) {
    const CommandResult ran = attend("generate -m " + file + kRecallPrompt, Streams::kStdout);
    EXPECT_EQ(ran.exit_code, 0) << ran.out;
    EXPECT_EQ(ran.out, expected) << file;
  }
}

TEST_F(GgufCommand, LoadFormatIsThatOfTheFile) {
  const std::string generate = "generate --load-format gguf -m ";
  EXPECT_EQ(attend(generate + plain_ + kRecallPrompt).exit_code, 0);
  EXPECT_THAT(attend(generate + kTinyModel + kRecallPrompt).out,
              HasSubstr("--load-format gguf: expected auto, safetensors or dummy"));
  EXPECT_THAT(attend("generate --load-format safetensors -m " + plain_ + kRecallPrompt).out,
              HasSubstr("--load-format safetensors: expected auto, gguf or dummy"));
}

TEST_F(GgufCommand, ChatAppliesTheTemplateOfTheFile) {
  const std::string chat = "generate --chat -p 'recall: sun=42; sun=' -n 4 --temp 0 -m ";
  const CommandResult original = attend(chat + kTinyModel, Streams::kStdout);
  EXPECT_EQ(original.exit_code, 0);
  EXPECT_EQ(attend(chat + plain_, Streams::kStdout).out, original.out);
}

TEST_F(GgufCommand, BackendsReportsTheTypesOfTensors) {
  const CommandResult ran = attend("backends -m " + quantized_);
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("Q8_0"));
  EXPECT_THAT(attend("backends -m " + plain_).out, Not(HasSubstr("Q8_0")));
}

TEST_F(GgufCommand, BenchMeasuresSteps) {
  const CommandResult ran = attend("bench model -m " + quantized_ + " -p 16 -n 4");
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
}

}  // namespace
}  // namespace attend
