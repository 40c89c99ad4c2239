#include "tests/model/gguf/gguf_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attend/backends/table.h"
#include "attend/kernels/common/decode_blocks.h"
#include "attend/model/loadable_model.h"
#include "tests/model/golden_driver.h"

namespace attend::test {

using nlohmann::json;

const std::vector<BlockType> kBlockTypes = {
    {2, BlockFormat::kQ4_0, {0}, 0.01f},      {3, BlockFormat::kQ4_1, {0, 2}, 0.006f},
    {6, BlockFormat::kQ5_0, {0}, 0.005f},     {7, BlockFormat::kQ5_1, {0, 2}, 0.003f},
    {8, BlockFormat::kQ8_0, {0}, 0.0007f},    {10, BlockFormat::kQ2K, {80, 82}, 0.004f},
    {11, BlockFormat::kQ3K, {108}, 0.001f},   {12, BlockFormat::kQ4K, {0, 2}, 0.0002f},
    {13, BlockFormat::kQ5K, {0, 2}, 0.0001f}, {14, BlockFormat::kQ6K, {208}, 0.00004f},
    {20, BlockFormat::kIq4Nl, {0}, 0.0007f},  {23, BlockFormat::kIq4Xs, {0}, 0.00005f},
    {39, BlockFormat::kMxFp4, {}, 0.0f},
};

namespace {

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

void write_hf(const TempDir& dir, const json& config, const std::map<std::string, Values>& weights) {
  dir.write("config.json", config.dump());
  std::vector<TestTensor> tensors;
  for (const auto& [name, values] : weights)
    tensors.push_back({name, "F32", values.shape, raw_bytes(values.values)});
  dir.write("model.safetensors", safetensors_bytes(tensors));
}

}  // namespace

void TypeMix::fill(Values& matrix, size_t index, float mean, std::mt19937& random) const {
  const uint32_t type = matrix.shape.size() == 1 ? kF32 : types[index % types.size()];
  if (type == kF32) return fill_plain<float>(matrix, type, mean, random);
  if (type == kF16) return fill_plain<F16>(matrix, type, mean, random);
  if (type == kBF16) return fill_plain<BF16>(matrix, type, mean, random);
  const auto block = std::ranges::find(kBlockTypes, type, &BlockType::number);
  fill_blocks(matrix, *block, random);
}

GgufArchitecture plain_qwen3() {
  return {.name = "qwen3", .hf = "Qwen3ForCausalLM", .fields = json::object(), .metadata = {}};
}

std::string gguf_name(const GgufArchitecture& architecture, std::string name) {
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

json hf_config(const GgufArchitecture& architecture) {
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

GgufBytes gguf_metadata(const GgufArchitecture& architecture, const json& config) {
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

void add_tensors(const GgufArchitecture& architecture, const json& config,
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

Tensor logits(const std::filesystem::path& path, const ModelPlacement& placement) {
  const ModelSpec spec = read_config(path);
  const std::unique_ptr<Model> model = load_model(path, spec, LoadFormat::kAuto, {}, placement);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 40; ++i) prompt.push_back((i * 7 + 3) % 64);
  GoldenDriver driver(*model, placement, *find_backend(backend_table(), "cpu"), 16, 1, 64, 64);
  Sequence sequence = driver.begin(prompt);
  const std::vector<Extension> whole{{&sequence, 40}};
  return driver.step(whole);
}

void expect_close(const Tensor& expected, const Tensor& got, float tolerance) {
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

void expect_equal_logits(const GgufArchitecture& architecture, const TypeMix& mix, float tolerance) {
  SCOPED_TRACE(architecture.name);
  const json config = hf_config(architecture);
  const std::map<std::string, Values> weights = random_weights(config, mix);
  const TempDir dir;
  write_hf(dir, config, weights);
  GgufBytes file = gguf_metadata(architecture, config);
  add_tensors(architecture, config, weights, file);
  const Tensor expected = logits(dir.path()), got = logits(dir.write("model.gguf", file.bytes()));
  expect_close(expected, got, tolerance);
}

}  // namespace attend::test
