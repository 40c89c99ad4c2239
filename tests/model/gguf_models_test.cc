// A model in a GGUF file computes the same logits as in a Hugging Face folder with the same weights, for
// every architecture and type of tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "attend/backends/table.h"
#include "attend/checkpoint/hf/safetensors.h"
#include "attend/checkpoint/json.h"
#include "attend/kernels/common/decode_blocks.h"
#include "attend/model/loadable_model.h"
#include "tests/model/golden_driver.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using nlohmann::json;
using test::expect_error;
using test::GgufBytes;
using test::TempDir;
using test::TestTensor;

constexpr uint32_t kF32 = 0, kF16 = 1, kBF16 = 30;

// Blocks with these scales have elements of about 0.05.
struct BlockType {
  uint32_t number;
  BlockFormat format;
  std::vector<int> scale_offsets;  // f16
  float scale;
};
const std::vector<BlockType> kBlockTypes = {
    {2, BlockFormat::kQ4_0, {0}, 0.01f},      {3, BlockFormat::kQ4_1, {0, 2}, 0.006f},
    {6, BlockFormat::kQ5_0, {0}, 0.005f},     {7, BlockFormat::kQ5_1, {0, 2}, 0.003f},
    {8, BlockFormat::kQ8_0, {0}, 0.0007f},    {10, BlockFormat::kQ2K, {80, 82}, 0.004f},
    {11, BlockFormat::kQ3K, {108}, 0.001f},   {12, BlockFormat::kQ4K, {0, 2}, 0.0002f},
    {13, BlockFormat::kQ5K, {0, 2}, 0.0001f}, {14, BlockFormat::kQ6K, {208}, 0.00004f},
    {20, BlockFormat::kIq4Nl, {0}, 0.0007f},  {23, BlockFormat::kIq4Xs, {0}, 0.00005f},
    {39, BlockFormat::kMxFp4, {}, 0.0f},
};

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

// Sets random blocks, and the values that they contain.
void fill_blocks(Values& matrix, const BlockType& type, std::mt19937& random) {
  const BlockLayout layout = block_layout(type.format);
  const size_t num_blocks = matrix.values.size() / static_cast<size_t>(layout.elements);
  matrix.type = type.number;
  matrix.bytes.resize(num_blocks * static_cast<size_t>(layout.bytes));
  for (char& byte : matrix.bytes) byte = static_cast<char>(random());
  for (size_t block = 0; block < num_blocks; ++block) {
    char* const bytes = matrix.bytes.data() + block * static_cast<size_t>(layout.bytes);
    for (const int offset : type.scale_offsets) {
      const F16 scale(type.scale * (0.5f + static_cast<float>(random() % 100) / 100.0f));
      std::memcpy(bytes + offset, &scale, sizeof scale);
    }
    if (type.format == BlockFormat::kMxFp4) bytes[0] = static_cast<char>(120 + random() % 3);
  }
  kernels::decode_blocks(type.format, reinterpret_cast<const uint8_t*>(matrix.bytes.data()),
                         static_cast<int64_t>(matrix.values.size()), matrix.values.data());
}

// Sets random values of a type without blocks.
template <class T>
void fill_plain(Values& matrix, uint32_t type, float mean, std::mt19937& random) {
  std::normal_distribution<float> normal(mean, 0.05f);
  std::vector<T> stored;
  for (float& value : matrix.values) {
    stored.emplace_back(normal(random));
    value = static_cast<float>(stored.back());
  }
  matrix.type = type;
  matrix.bytes = raw_bytes(stored);
}

// Types of a model's matrices, in turn. Vectors are float32.
struct TypeMix {
  std::vector<uint32_t> types;

  void fill(Values& matrix, size_t index, float mean, std::mt19937& random) const {
    const uint32_t type = matrix.shape.size() == 1 ? kF32 : types[index % types.size()];
    if (type == kF32) return fill_plain<float>(matrix, type, mean, random);
    if (type == kF16) return fill_plain<F16>(matrix, type, mean, random);
    if (type == kBF16) return fill_plain<BF16>(matrix, type, mean, random);
    const auto block = std::ranges::find(kBlockTypes, type, &BlockType::number);
    fill_blocks(matrix, *block, random);
  }
};

using Metadata = std::function<void(GgufBytes& file, const json& config)>;

struct Architecture {
  std::string name, hf;
  json fields;        // of config.json, next to the common ones
  Metadata metadata;  // next to the common one
  bool permutes_qk = false, adds_one = false;
  // Names in layers that differ from the common ones: Hugging Face's, GGUF's.
  std::vector<std::pair<std::string, std::string>> names = {};
};

const std::vector<std::pair<std::string, std::string>> kNames = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"post_attention_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.experts.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.up_proj", "ffn_up_exps"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
};

// Name in a GGUF file. `name` has no number of an expert.
std::string gguf_name(const Architecture& architecture, std::string name) {
  constexpr std::string_view kLayers = "model.layers.";
  std::string prefix;
  if (name.starts_with(kLayers)) {
    const size_t dot = name.find('.', kLayers.size());
    prefix = "blk." + name.substr(kLayers.size(), dot + 1 - kLayers.size());
    name = name.substr(dot + 1);
  }
  std::string ending;
  for (const std::string each : {".weight", ".bias"})
    if (name.ends_with(each)) {
      ending = each;
      name.resize(name.size() - each.size());
    }
  for (const auto* names : {&architecture.names, &kNames})
    for (const auto& [hf, gguf] : *names)
      if (hf == name) return prefix + gguf + ending;
  return prefix + name + ending;
}

// Splits "a.experts.3.b" into "a.experts.b" and 3.
std::pair<std::string, int> split_expert(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string::npos) return {name, -1};
  const size_t begin = at + kExperts.size(), end = name.find('.', begin);
  return {name.substr(0, begin) + name.substr(end + 1), std::stoi(name.substr(begin, end - begin))};
}

// Order of a head's rows in which pairs that are rotated together are neighbors.
std::string permuted(const Values& matrix, int head_dim) {
  const size_t num_rows = static_cast<size_t>(matrix.shape[0]), row_bytes = matrix.bytes.size() / num_rows;
  const auto dim = static_cast<size_t>(head_dim), half = dim / 2;
  std::string bytes;
  for (size_t row = 0; row < num_rows; ++row) {
    const size_t in_head = row % dim, from = row - in_head + in_head % 2 * half + in_head / 2;
    bytes += matrix.bytes.substr(from * row_bytes, row_bytes);
  }
  return bytes;
}

json hf_config(const Architecture& architecture) {
  json config = {{"architectures", {architecture.hf}},
                 {"vocab_size", 64},
                 {"hidden_size", 256},
                 {"intermediate_size", 256},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 4},
                 {"head_dim", 32},
                 {"max_position_embeddings", 128},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", 5000.0},
                 {"tie_word_embeddings", false},
                 {"eos_token_id", 1}};
  config.update(architecture.fields);
  return config;
}

// Weights of the model, by Hugging Face names.
std::map<std::string, Values> random_weights(const json& config, const TypeMix& mix) {
  const ModelSpec spec = parse_config(config.dump(), "config.json");
  std::map<std::string, Values> weights;
  const NamedSlots named = make_named_slots(spec, {}, nullptr);
  for (const WeightSlot& slot : named.slots)
    for (const WeightPart& part : slot.parts) {
      Values& values = weights[part.name];
      if (values.shape.empty()) {
        values.shape = {0};
        if (slot.layout == StoredLayout::kConvolution) values.shape.push_back(1);
        if (slot.columns > 0) values.shape.push_back(slot.columns);
      }
      values.shape[0] += part.rows;
    }
  std::mt19937 random(7);
  size_t index = 0;
  for (auto& [name, values] : weights) {
    size_t count = 1;
    for (const int64_t extent : values.shape) count *= static_cast<size_t>(extent);
    values.values.resize(count);
    const bool is_norm = values.shape.size() == 1 && name.find("norm") != std::string::npos;
    // ggml has convolutions and routers in float32.
    const bool plain = name.find(".conv.conv") != std::string::npos || name.ends_with("mlp.gate.weight");
    const TypeMix f32{{kF32}};
    // Experts of a layer share a tensor, and so a type.
    const auto [merged, expert] = split_expert(name);
    if (expert < 0) ++index;
    (plain ? f32 : mix)
        .fill(values, expert >= 0 ? std::hash<std::string>()(merged) : index,
              is_norm && !spec.zero_centered_norms ? 1.0f : 0.0f, random);
  }
  return weights;
}

void write_hf(const TempDir& dir, const json& config, const std::map<std::string, Values>& weights) {
  dir.write("config.json", config.dump());
  std::vector<TestTensor> tensors;
  for (const auto& [name, values] : weights)
    tensors.push_back({name, "F32", values.shape, raw_bytes(values.values)});
  dir.write("model.safetensors", test::safetensors_bytes(tensors));
}

GgufBytes gguf_metadata(const Architecture& architecture, const json& config) {
  GgufBytes file;
  const auto integer = [&](const char* key, const char* field) {
    if (config.contains(field)) file.add(architecture.name + "." + key, config[field].get<uint32_t>());
  };
  file.add("general.architecture", architecture.name);
  integer("block_count", "num_hidden_layers");
  integer("context_length", "max_position_embeddings");
  integer("embedding_length", "hidden_size");
  integer("feed_forward_length", "intermediate_size");
  integer("attention.head_count", "num_attention_heads");
  if (!architecture.name.starts_with("lfm2")) integer("attention.head_count_kv", "num_key_value_heads");
  integer("attention.key_length", "head_dim");
  integer("expert_count", "num_local_experts");
  integer("expert_used_count", "num_experts_per_tok");
  integer("expert_feed_forward_length", "moe_intermediate_size");
  file.add(architecture.name + ".attention.layer_norm_rms_epsilon", config["rms_norm_eps"].get<float>());
  file.add(architecture.name + ".rope.freq_base", config["rope_theta"].get<float>());
  file.add("tokenizer.ggml.eos_token_id", uint32_t{1});
  if (architecture.metadata) architecture.metadata(file, config);
  return file;
}

void add_tensors(const Architecture& architecture, const json& config,
                 const std::map<std::string, Values>& weights, GgufBytes& file) {
  std::map<std::string, std::map<int, const Values*>> experts;
  const auto add = [&](const std::string& name, const Values& values, const std::string& bytes,
                       uint64_t num_experts) {
    std::vector<uint64_t> extents;
    for (auto extent = values.shape.rbegin(); extent != values.shape.rend(); ++extent)
      if (*extent != 1 || values.shape.size() != 3) extents.push_back(static_cast<uint64_t>(*extent));
    if (num_experts > 0) extents.push_back(num_experts);
    file.tensor(gguf_name(architecture, name), extents, values.type, bytes);
  };
  for (const auto& [name, values] : weights) {
    const auto [merged, expert] = split_expert(name);
    if (expert >= 0) {
      experts[merged][expert] = &values;
      continue;
    }
    std::string bytes = values.bytes;
    const bool is_qk = name.find("self_attn.q_proj") != std::string::npos ||
                       name.find("self_attn.k_proj") != std::string::npos;
    if (architecture.permutes_qk && is_qk) bytes = permuted(values, config["head_dim"].get<int>());
    if (architecture.adds_one && name.find("norm.weight") != std::string::npos) {
      std::vector<float> sums = values.values;
      for (float& sum : sums) sum += 1.0f;
      bytes = raw_bytes(sums);
    }
    add(name, values, bytes, 0);
  }
  for (const auto& [name, parts] : experts) {
    std::string bytes;
    for (const auto& [expert, values] : parts) bytes += values->bytes;
    add(name, *parts.begin()->second, bytes, parts.size());
  }
}

Tensor logits(const std::filesystem::path& path) {
  const ModelSpec spec = read_config(path);
  const std::unique_ptr<Model> model = load_model(path, spec, LoadFormat::kAuto, {}, {});
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 40; ++i) prompt.push_back((i * 7 + 3) % 64);
  test::GoldenDriver driver(*model, {}, *find_backend(backend_table(), "cpu"), 16, 1, 64, 64);
  test::Sequence sequence = driver.begin(prompt);
  const std::vector<test::Extension> whole{{&sequence, 40}};
  return driver.step(whole);
}

// Expects equal logits, up to `tolerance` relative to the largest one.
void expect_equal_logits(const Architecture& architecture, const TypeMix& mix, float tolerance) {
  SCOPED_TRACE(architecture.name);
  const json config = hf_config(architecture);
  const std::map<std::string, Values> weights = random_weights(config, mix);
  const TempDir dir;
  write_hf(dir, config, weights);
  GgufBytes file = gguf_metadata(architecture, config);
  add_tensors(architecture, config, weights, file);
  const Tensor expected = logits(dir.path()), got = logits(dir.write("model.gguf", file.bytes()));
  ASSERT_EQ(expected.view().num_elements(), got.view().num_elements());
  float largest = 0.0f, error = 0.0f;
  for (int64_t i = 0; i < got.view().num_elements(); ++i) {
    largest = std::max(largest, std::abs(expected.as<const float>()[i]));
    const float difference = std::abs(expected.as<const float>()[i] - got.as<const float>()[i]);
    error = difference <= error ? error : difference;
  }
  EXPECT_GT(largest, 0.0f);
  EXPECT_LE(error, tolerance * largest);
}

Metadata no_metadata() {
  return [](GgufBytes&, const json&) {};
}

std::vector<Architecture> architectures() {
  const std::vector<std::pair<std::string, std::string>> gemma_names = {
      {"pre_feedforward_layernorm", "ffn_norm"}, {"post_attention_layernorm", "post_attention_norm"}};
  const std::vector<std::pair<std::string, std::string>> lfm2_names = {
      {"model.embedding_norm", "token_embd_norm"},
      {"operator_norm", "attn_norm"},
      {"self_attn.out_proj", "attn_output"},
      {"self_attn.q_layernorm", "attn_q_norm"},
      {"self_attn.k_layernorm", "attn_k_norm"},
      {"ffn_norm", "ffn_norm"},
      {"feed_forward.w1", "ffn_gate"},
      {"feed_forward.w3", "ffn_up"},
      {"feed_forward.w2", "ffn_down"},
      {"conv.in_proj", "shortconv.in_proj"},
      {"conv.conv", "shortconv.conv"},
      {"conv.out_proj", "shortconv.out_proj"},
      {"feed_forward.gate", "ffn_gate_inp"},
      {"feed_forward.expert_bias", "exp_probs_b.bias"},
      {"feed_forward.experts.w1", "ffn_gate_exps"},
      {"feed_forward.experts.w3", "ffn_up_exps"},
      {"feed_forward.experts.w2", "ffn_down_exps"}};
  const json experts = {{"num_experts_per_tok", 2}, {"moe_intermediate_size", 256}};
  const json deepseek_experts = {{"n_routed_experts", 4},
                                 {"n_shared_experts", 1},
                                 {"first_k_dense_replace", 1},
                                 {"routed_scaling_factor", 1.5},
                                 {"norm_topk_prob", true},
                                 {"n_group", 1},
                                 {"topk_group", 1},
                                 {"num_experts_per_tok", 2},
                                 {"moe_intermediate_size", 256}};
  const auto add_deepseek_experts = [](GgufBytes& file, const std::string& name) {
    file.add(name + ".expert_count", uint32_t{4}).add(name + ".expert_shared_count", uint32_t{1});
    file.add(name + ".leading_dense_block_count", uint32_t{1}).add(name + ".expert_weights_scale", 1.5f);
    file.add(name + ".expert_weights_norm", true);
  };
  const json gemma = {{"hidden_activation", "gelu_pytorch_tanh"}, {"tie_word_embeddings", true}};
  const auto with = [](json fields, const json& others) {
    fields.update(others);
    return fields;
  };
  return {
      {.name = "llama",
       .hf = "LlamaForCausalLM",
       .fields = {{"tie_word_embeddings", true}},
       .metadata = no_metadata(),
       .permutes_qk = true},
      {.name = "llama",
       .hf = "MixtralForCausalLM",
       .fields = {{"num_local_experts", 4}, {"num_experts_per_tok", 2}},
       .metadata = no_metadata(),
       .permutes_qk = true,
       .names = {{"block_sparse_moe.gate", "ffn_gate_inp"},
                 {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
                 {"block_sparse_moe.experts.w3", "ffn_up_exps"},
                 {"block_sparse_moe.experts.w2", "ffn_down_exps"}}},
      {.name = "qwen2", .hf = "Qwen2ForCausalLM", .fields = json::object(), .metadata = no_metadata()},
      {.name = "qwen3", .hf = "Qwen3ForCausalLM", .fields = json::object(), .metadata = no_metadata()},
      {.name = "qwen3moe",
       .hf = "Qwen3MoeForCausalLM",
       .fields = {{"num_local_experts", 4},
                  {"num_experts_per_tok", 2},
                  {"moe_intermediate_size", 256},
                  {"norm_topk_prob", true}},
       .metadata = no_metadata()},
      {.name = "gemma",
       .hf = "GemmaForCausalLM",
       .fields = gemma,
       .metadata = no_metadata(),
       .adds_one = true},
      {.name = "gemma2",
       .hf = "Gemma2ForCausalLM",
       .fields = with(gemma, {{"query_pre_attn_scalar", 32},
                              {"sliding_window", 16},
                              {"attn_logit_softcapping", 40.0},
                              {"final_logit_softcapping", 20.0}}),
       .metadata =
           [](GgufBytes& file, const json&) {
             file.add("gemma2.attention.sliding_window", uint32_t{16});
             file.add("gemma2.attn_logit_softcapping", 40.0f);
             file.add("gemma2.final_logit_softcapping", 20.0f);
           },
       .adds_one = true,
       .names = gemma_names},
      {.name = "gemma3",
       .hf = "Gemma3ForCausalLM",
       .fields = with(gemma, {{"query_pre_attn_scalar", 32},
                              {"sliding_window", 16},
                              {"num_hidden_layers", 7},
                              {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}),
       .metadata =
           [](GgufBytes& file, const json&) {
             file.add("gemma3.attention.sliding_window", uint32_t{16});
             file.add("gemma3.rope.scaling.type", "linear");
             file.add("gemma3.rope.scaling.factor", 8.0f);
           },
       .adds_one = true,
       .names = gemma_names},
      {.name = "phi3",
       .hf = "Phi3ForCausalLM",
       .fields = {{"partial_rotary_factor", 0.75}},
       .metadata = [](GgufBytes& file, const json&) { file.add("phi3.rope.dimension_count", uint32_t{24}); }},
      {.name = "glm4",
       .hf = "Glm4ForCausalLM",
       .fields = {{"attention_bias", true}},
       .metadata = [](GgufBytes& file, const json&) { file.add("glm4.rope.dimension_count", uint32_t{16}); },
       .names = {{"post_self_attn_layernorm", "post_attention_norm"},
                 {"post_mlp_layernorm", "post_ffw_norm"}}},
      {.name = "granite",
       .hf = "GraniteForCausalLM",
       .fields = {{"attention_multiplier", 0.125},
                  {"embedding_multiplier", 12.0},
                  {"residual_multiplier", 0.25},
                  {"logits_scaling", 8.0}},
       .metadata =
           [](GgufBytes& file, const json&) {
             file.add("granite.attention.scale", 0.125f);
             file.add("granite.embedding_scale", 12.0f);
             file.add("granite.residual_scale", 0.25f);
             file.add("granite.logit_scale", 8.0f);
           },
       .permutes_qk = true},
      {.name = "olmo2",
       .hf = "Olmo2ForCausalLM",
       .fields = json::object(),
       .metadata = no_metadata(),
       .names = {{"post_attention_layernorm", "post_attention_norm"}}},
      {.name = "olmoe",
       .hf = "OlmoeForCausalLM",
       .fields = {{"num_local_experts", 4}, {"num_experts_per_tok", 2}, {"norm_topk_prob", false}},
       .metadata = no_metadata()},
      {.name = "smollm3",
       .hf = "SmolLM3ForCausalLM",
       .fields = {{"num_hidden_layers", 5}},
       .metadata = no_metadata(),
       .permutes_qk = true},
      {.name = "lfm2",
       .hf = "Lfm2ForCausalLM",
       .fields = {{"layer_types", {"conv", "full_attention"}},
                  {"block_auto_adjust_ff_dim", false},
                  {"conv_L_cache", 3},
                  {"norm_eps", 1e-5},
                  {"tie_word_embeddings", true},
                  {"tie_embedding", true}},
       .metadata =
           [](GgufBytes& file, const json&) {
             file.add("lfm2.shortconv.l_cache", uint32_t{3});
             // Layers without heads are convolutions.
             file.add("lfm2.attention.head_count_kv", std::vector<int32_t>{0, 4});
           },
       .names = lfm2_names},
      {.name = "lfm2moe",
       .hf = "Lfm2MoeForCausalLM",
       .fields = with(experts, {{"layer_types", {"conv", "full_attention"}},
                                {"conv_L_cache", 3},
                                {"norm_eps", 1e-5},
                                {"num_dense_layers", 1},
                                {"num_local_experts", 4},
                                {"tie_word_embeddings", true},
                                {"tie_embedding", true}}),
       .metadata =
           [](GgufBytes& file, const json&) {
             file.add("lfm2moe.shortconv.l_cache", uint32_t{3});
             file.add("lfm2moe.leading_dense_block_count", uint32_t{1});
             file.add("lfm2moe.attention.head_count_kv", std::vector<int32_t>{0, 4});
           },
       .names = lfm2_names},
      {.name = "glm4moe",
       .hf = "Glm4MoeForCausalLM",
       .fields = with(deepseek_experts,
                      {{"use_qk_norm", true}, {"attention_bias", true}, {"partial_rotary_factor", 0.5}}),
       .metadata =
           [=](GgufBytes& file, const json&) {
             add_deepseek_experts(file, "glm4moe");
             file.add("glm4moe.rope.dimension_count", uint32_t{16});
           },
       .names = {{"post_attention_layernorm", "post_attention_norm"}}},
      {.name = "dots1",
       .hf = "Dots1ForCausalLM",
       .fields = with(deepseek_experts, {{"sliding_window", nullptr}}),
       .metadata = [=](GgufBytes& file, const json&) { add_deepseek_experts(file, "dots1"); }},
      {.name = "deepseek2",
       .hf = "DeepseekV2ForCausalLM",
       .fields = {{"kv_lora_rank", 256},
                  {"q_lora_rank", nullptr},
                  {"qk_nope_head_dim", 32},
                  {"qk_rope_head_dim", 32},
                  {"v_head_dim", 32},
                  {"n_routed_experts", 4},
                  {"n_shared_experts", 1},
                  {"num_experts_per_tok", 2},
                  {"moe_intermediate_size", 256},
                  {"first_k_dense_replace", 1},
                  {"head_dim", 64},
                  {"topk_method", "greedy"}},
       .metadata =
           [](GgufBytes& file, const json&) {
             file.add("deepseek2.attention.kv_lora_rank", uint32_t{256});
             file.add("deepseek2.attention.value_length", uint32_t{32});
             file.add("deepseek2.rope.dimension_count", uint32_t{32});
             file.add("deepseek2.expert_count", uint32_t{4});
             file.add("deepseek2.expert_shared_count", uint32_t{1});
             file.add("deepseek2.leading_dense_block_count", uint32_t{1});
           }},
  };
}

class GgufModels : public testing::TestWithParam<size_t> {
 protected:
  static Architecture architecture() { return architectures()[GetParam()]; }
};

TEST_P(GgufModels, MatchTheFolderWithTheSameWeights) {
  const Architecture one = architecture();
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
    expect_equal_logits(
        {.name = "qwen3", .hf = "Qwen3ForCausalLM", .fields = json::object(), .metadata = no_metadata()},
        {{type.number}}, 5e-5f);
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
  const Architecture gpt_oss{.name = "gpt-oss",
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
  const Tensor expected = logits(dir.path()), got = logits(dir.write("model.gguf", file.bytes()));
  for (int64_t i = 0; i < got.view().num_elements(); ++i)
    ASSERT_EQ(got.as<const float>()[i], expected.as<const float>()[i]) << i;
}

TEST(GgufModel, RejectsUnknownArchitecturesAndTypes) {
  const TempDir dir;
  expect_error(ErrorCode::kUnsupported, {"general.architecture", "\"mpt\"", "qwen3"}, [&] {
    read_config(dir.write("a.gguf", GgufBytes().add("general.architecture", "mpt").bytes()));
  });
  const Architecture qwen{
      .name = "qwen3", .hf = "Qwen3ForCausalLM", .fields = json::object(), .metadata = no_metadata()};
  GgufBytes file = gguf_metadata(qwen, hf_config(qwen));
  file.tensor("token_embd.weight", {256, 64}, 16, std::string(64 * 66, '\0'));
  const auto path = dir.write("b.gguf", file.bytes());
  expect_error(ErrorCode::kUnsupported, {"b.gguf", "token_embd.weight", "IQ2_XXS", "Q4_K"},
               [&] { open_checkpoint(path)->open_tensors(); });
}

TEST(GgufModel, RejectsScalesThatAreNotFinite) {
  const Architecture qwen{
      .name = "qwen3", .hf = "Qwen3ForCausalLM", .fields = json::object(), .metadata = no_metadata()};
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
  const Architecture qwen{
      .name = "qwen3", .hf = "Qwen3ForCausalLM", .fields = json::object(), .metadata = no_metadata()};
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
  const Architecture qwen{
      .name = "qwen3", .hf = "Qwen3ForCausalLM", .fields = json::object(), .metadata = no_metadata()};
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
}  // namespace attend
