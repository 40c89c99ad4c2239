// DeepseekV32ForCausalLM (DeepSeek-V3.2) and GlmMoeDsaForCausalLM (GLM-5): DeepSeek-V3 with an indexer that
// selects the keys of each query. In GLM-5.2, some layers use the selection of the layer before them.
#include <algorithm>
#include <string>
#include <vector>

#include "attend/base/error.h"
#include "attend/kernels/indexer/sparse_mla.h"
#include "attend/model/architectures/latent/deepseek.h"

namespace attend {
namespace {

constexpr int kMaxIndexSize = 1 << 16;

struct IndexerDefaults {
  int num_heads = 0;
  bool interleaved_rope = false;
};

// Sets the indexer of every layer.
void read_indexers(const JsonNode& json, const IndexerDefaults& defaults, ModelSpec& spec) {
  const int rope_dim = std::get<MlaSpec>(spec.layers.front().mixer).rope_dim;
  const IndexerSpec indexer{
      .top_k = json.find_integer("index_topk", 1, 1 << 30).value_or(2048),
      .num_heads = json.find_integer("index_n_heads", 1, kMaxIndexSize).value_or(defaults.num_heads),
      .head_dim = json.find_integer("index_head_dim", 1, kMaxIndexSize).value_or(128),
      .interleaved_rope = json.boolean_or("indexer_rope_interleave", defaults.interleaved_rope)};
  if (indexer.head_dim <= rope_dim || indexer.head_dim > kernels::kMaxIndexDim)
    fail(ErrorCode::kUnsupported, json.where("index_head_dim"), " ", indexer.head_dim,
         ": attend supports sizes above qk_rope_head_dim ", rope_dim, ", up to ", kernels::kMaxIndexDim);
  if (std::get<MlaSpec>(spec.layers.front().mixer).q_lora_rank == 0)
    json.reject("q_lora_rank", "a size: index queries are projected from the latent vector of q");
  for (LayerSpec& layer : spec.layers) std::get<MlaSpec>(layer.mixer).indexer = indexer;
}

// Returns for each layer whether it uses the selection of an earlier one. The first of these fields that the
// config has applies: indexer_types, index_topk_pattern, index_topk_freq with index_skip_topk_offset.
std::vector<bool> read_shared_indexers(const JsonNode& json, size_t num_layers) {
  std::vector<bool> shared;
  const auto add = [&](const JsonNode& field, std::string_view full_name, std::string_view shared_name) {
    const std::string expected = "\"" + std::string(full_name) + "\" or \"" + std::string(shared_name) +
                                 "\" for each of " + std::to_string(num_layers) + " layers, the first \"" +
                                 std::string(full_name) + "\"";
    for (const Json& type : field.value()) {
      shared.push_back(is_string(type, shared_name));
      if (!shared.back() && !is_string(type, full_name)) field.reject(expected);
    }
    if (shared.size() != num_layers || shared.front()) field.reject(expected);
  };
  if (const auto types = json.find("indexer_types")) {
    if (!types->value().is_array()) types->reject("an array of \"full\" or \"shared\"");
    add(*types, "full", "shared");
    return shared;
  }
  if (const auto pattern = json.find_string("index_topk_pattern")) {
    for (const char letter : *pattern) shared.push_back(letter == 'S');
    if (pattern->size() != num_layers || pattern->front() != 'F' ||
        pattern->find_first_not_of("FS") != std::string::npos)
      json.reject("index_topk_pattern",
                  "F or S for each of " + std::to_string(num_layers) + " layers, the first F");
    return shared;
  }
  const int freq = json.find_integer("index_topk_freq", 1, kMaxIndexSize).value_or(1);
  const int offset = json.find_integer("index_skip_topk_offset", 0, kMaxIndexSize).value_or(2);
  for (int layer = 0; layer < static_cast<int>(num_layers); ++layer)
    shared.push_back(std::max(layer - offset + 1, 0) % freq != 0);
  if (shared.front())
    json.reject("index_skip_topk_offset", "a number with which layer 0 has an indexer of its own");
  return shared;
}

constexpr DeepseekDefaults kV32Defaults{.num_layers = 61,
                                        .num_heads = 128,
                                        .intermediate_size = 18432,
                                        .q_lora_rank = 1536,
                                        .moe_intermediate_size = 2048,
                                        .num_experts = 256,
                                        .top_k = 8,
                                        .num_shared_experts = 1,
                                        .first_dense_layers = 3,
                                        .num_groups = 8,
                                        .top_groups = 4,
                                        .routed_scale = 2.5f};

constexpr DeepseekDefaults kGlmDefaults{.num_layers = 78,
                                        .num_heads = 64,
                                        .intermediate_size = 12288,
                                        .q_lora_rank = 2048,
                                        .moe_intermediate_size = 2048,
                                        .num_experts = 256,
                                        .top_k = 8,
                                        .num_shared_experts = 1,
                                        .first_dense_layers = 3,
                                        .num_groups = 1,
                                        .top_groups = 1,
                                        .routed_scale = 2.5f,
                                        .nope_dim = 192,
                                        .v_dim = 256};

void read_sparse_layers(const JsonNode& json, const DeepseekDefaults& defaults,
                        const IndexerDefaults& indexer, ModelSpec& spec) {
  expect_string(json, "scoring_func", "sigmoid");
  expect_string(json, "topk_method", "noaux_tc");
  read_latent_layers(json, defaults, spec);
  read_corrected_experts(json, defaults, /*normalized=*/true, spec);
  read_indexers(json, indexer, spec);
}

void read_v32_layers(const JsonNode& json, const ConfigDefaults&, ModelSpec& spec) {
  read_sparse_layers(json, kV32Defaults, {.num_heads = 64}, spec);
}

void read_glm_layers(const JsonNode& json, const ConfigDefaults&, ModelSpec& spec) {
  read_sparse_layers(json, kGlmDefaults, {.num_heads = 32, .interleaved_rope = true}, spec);
  const std::vector<bool> shared = read_shared_indexers(json, spec.layers.size());
  for (size_t i = 0; i < shared.size(); ++i)
    std::get<MlaSpec>(spec.layers[i].mixer).indexer->is_shared = shared[i];
}

}  // namespace

constinit const ModelArchitecture kDeepseekV32{
    .name = "DeepseekV32ForCausalLM",
    .models = "DeepSeek V3.2",
    .read_layers = read_v32_layers,
    .defaults = {.vocab_size = 129280, .hidden_size = 7168, .max_position_embeddings = 163840},
    .predicts_more_tokens = true,
    .aux_ids = AuxIds::kOutputsFromFirst};

constinit const ModelArchitecture kGlmMoeDsa{.name = "GlmMoeDsaForCausalLM",
                                             .models = "GLM-5, GLM-5.2",
                                             .read_layers = read_glm_layers,
                                             .defaults = {.vocab_size = 154880,
                                                          .hidden_size = 6144,
                                                          .max_position_embeddings = 202752,
                                                          .norm_eps = 1e-5},
                                             .predicts_more_tokens = true};

}  // namespace attend
