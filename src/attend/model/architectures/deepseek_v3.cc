// DeepseekV3ForCausalLM: V3, R1, Kimi K2, Moonlight. Each expert has a sigmoid score; a vector of the
// checkpoint corrects which are chosen, among the groups of the best ones, and not how much they count.
#include "attend/model/architectures/deepseek.h"

namespace attend {
namespace {

constexpr DeepseekDefaults kV3Defaults{.num_layers = 61,
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

void read_v3_layers(const JsonNode& json, const ConfigDefaults&, ModelSpec& spec) {
  expect_string(json, "scoring_func", "sigmoid");
  expect_string(json, "topk_method", "noaux_tc");
  read_latent_layers(json, kV3Defaults, spec);
  read_corrected_experts(json, kV3Defaults, true, spec);
}

}  // namespace

constinit const ModelArchitecture kDeepseekV3{
    .name = "DeepseekV3ForCausalLM",
    .read_layers = read_v3_layers,
    .defaults = {.vocab_size = 129280, .hidden_size = 7168, .max_position_embeddings = 4096},
    .predicts_more_tokens = true};

}  // namespace attend
