// Mistral4ForCausalLM (Mistral Small 4): DeepSeek-V3's latent attention with a query temperature, and experts
// with softmax scores next to a shared one. All experts of a layer are one tensor.
#include "attend/base/error.h"
#include "attend/model/architectures/latent/deepseek.h"

namespace attend {
namespace {

constexpr DeepseekDefaults kMistral4Defaults{.num_layers = 36,
                                             .num_heads = 32,
                                             .intermediate_size = 12288,
                                             .q_lora_rank = 1024,
                                             .moe_intermediate_size = 2048,
                                             .num_experts = 128,
                                             .top_k = 4,
                                             .num_shared_experts = 1,
                                             .nope_dim = 64,
                                             .rope_share_of_head = true};

}  // namespace

void read_mistral4_layers(const JsonNode& json, const ConfigDefaults&, ModelSpec& spec) {
  const JsonNode rope = json.at("rope_parameters");
  read_latent_layers(json, kMistral4Defaults, spec);
  const bool normalized = json.boolean_or("norm_topk_prob", true);
  read_deepseek_mlps(
      json, kMistral4Defaults,
      {.scores = kernels::RouterScores::kSoftmax,
       .weights = normalized ? kernels::RouterWeights::kChosenExperts : kernels::RouterWeights::kAllExperts},
      spec);
  const auto slope = rope.find_positive("llama_4_scaling_beta");
  for (LayerSpec& layer : spec.layers) {
    if (slope)
      std::get<MlaSpec>(layer.mixer).temperature = {
          .slope = static_cast<float>(*slope),
          .floor_scale = static_cast<float>(rope.integer("original_max_position_embeddings", 1, 1 << 30)),
          .first = 0};
    auto* const experts = std::get_if<MoeMlpSpec>(&layer.mlp);
    if (experts == nullptr) continue;
    experts->fused_experts = experts->fused_expert_rows = true;
    if (experts->rule.groups.is_limited())
      fail(ErrorCode::kUnsupported, json.where("topk_group"),
           ": attend does not rank groups by the softmax scores of two experts; expected n_group");
  }
}

constinit const ModelArchitecture kMistral4{
    .name = "Mistral4ForCausalLM",
    .models = "Mistral Small 4 (text)",
    .read_layers = read_mistral4_layers,
    .defaults = {.vocab_size = 131072, .hidden_size = 4096, .max_position_embeddings = 1048576}};

}  // namespace attend
