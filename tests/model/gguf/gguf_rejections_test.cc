// GGUF files of models that are rejected, and the fields that the errors name.
#include <gtest/gtest.h>

#include <cstring>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/model_spec.h"
#include "tests/model/gguf/gguf_model.h"

namespace attend::test {
namespace {

using nlohmann::json;

TEST(GgufModel, RejectsUnknownArchitecturesAndTypes) {
  const TempDir dir;
  expect_error(ErrorCode::kUnsupported, {"general.architecture", "\"mpt\"", "qwen3"}, [&] {
    read_config(dir.write("a.gguf", GgufBytes().add("general.architecture", "mpt").bytes()));
  });
  const GgufArchitecture qwen = plain_qwen3();
  GgufBytes file = gguf_metadata(qwen, hf_config(qwen));
  file.tensor("token_embd.weight", {256, 64}, 16, std::string(64 * 66, '\0'));
  const auto path = dir.write("b.gguf", file.bytes());
  expect_error(ErrorCode::kUnsupported, {"b.gguf", "token_embd.weight", "IQ2_XXS", "Q4_K"},
               [&] { open_checkpoint(path)->open_tensors(); });
}

TEST(GgufModel, RejectsScalesThatAreNotFinite) {
  const GgufArchitecture qwen = plain_qwen3();
  const json config = hf_config(qwen);
  std::map<std::string, Values> weights = random_weights(config, {{12}});
  Values& q = weights["model.layers.1.self_attn.q_proj.weight"];
  const F16 infinite = F16::from_bits(0x7c00);
  std::memcpy(q.bytes.data() + 5 * 144, &infinite, sizeof infinite);
  GgufBytes file = gguf_metadata(qwen, config);
  add_tensors(qwen, config, weights, file);
  const TempDir dir;
  expect_error(ErrorCode::kCorruptFile, {"model.layers.1.self_attn.q_proj.weight", "output 5", "infinite"},
               [&] { logits(dir.write("model.gguf", file.bytes())); });
}

TEST(GgufModel, RejectsAFileWithoutTheEpsilonOfNorms) {
  GgufBytes file;
  file.add("general.architecture", "qwen3").add("qwen3.block_count", uint32_t{1});
  file.add("qwen3.context_length", uint32_t{32}).add("qwen3.embedding_length", uint32_t{64});
  file.add("qwen3.attention.head_count", uint32_t{2});
  const TempDir dir;
  expect_error(ErrorCode::kCorruptFile,
               {"qwen3.attention.layer_norm_rms_epsilon", "missing: expected a number"},
               [&] { (void)read_config(dir.write("model.gguf", file.bytes())); });
}

TEST(GgufModel, RejectsMetadataThatTheArchitectureDoesNotUse) {
  const GgufArchitecture qwen = plain_qwen3();
  const json config = hf_config(qwen);
  const TempDir dir;
  const auto expect_rejected = [&](const std::string& key, auto value, const std::string& supported) {
    GgufBytes file = gguf_metadata(qwen, config);
    file.add("qwen3.rope.scaling.type", "yarn").add("qwen3.rope.scaling.factor", 4.0f).add(key, value);
    file.tensor("token_embd.weight", {4, 2}, kF32, std::string(32, '\0'));
    expect_error(ErrorCode::kUnsupported, {key + "\" ", "attend supports " + supported},
                 [&] { (void)read_config(dir.write("model.gguf", file.bytes())); });
  };
  expect_rejected("qwen3.rope.dimension_count", uint32_t{16}, "the head dim, 32");
  expect_rejected("qwen3.rope.scaling.attn_factor", 0.5f, "1 for yarn");
  expect_rejected("qwen3.rope.scaling.yarn_ext_factor", 0.0f, "1 for yarn");
  expect_rejected("qwen3.attention.causal", false, "causal attention");
  expect_rejected("qwen3.pooling_type", uint32_t{1}, "0 (none) and 3 (last token)");
}

TEST(GgufModel, RejectsAShapeThatDiffersFromTheMetadata) {
  const GgufArchitecture qwen = plain_qwen3();
  const json config = hf_config(qwen);
  std::map<std::string, Values> weights = random_weights(config, {{12}});
  Values& q = weights["model.layers.1.self_attn.q_proj.weight"];
  q.shape = {128, 512};
  GgufBytes file = gguf_metadata(qwen, config);
  add_tensors(qwen, config, weights, file);
  const TempDir dir;
  expect_error(ErrorCode::kCorruptFile,
               {"model.layers.1.self_attn.q_proj.weight", "shape [128, 2, 144]", "[256, 1, 144]"},
               [&] { logits(dir.write("model.gguf", file.bytes())); });
}

}  // namespace
}  // namespace attend::test
