// DeepseekV2ForCausalLM: V2 and V2-Lite. A softmax of all experts weighs those that are chosen, among all or
// among the groups of the best ones.
#include "attend/base/error.h"
#include "attend/model/architectures/deepseek.h"

namespace attend {
namespace {

constexpr DeepseekDefaults kV2Defaults{.num_layers = 32,
                                       .num_heads = 32,
                                       .intermediate_size = 11008,
                                       .q_lora_rank = 1536,
                                       .moe_intermediate_size = 1407,
                                       .num_experts = 64,
                                       .top_k = 0,
                                       .num_shared_experts = 2,
                                       .first_dense_layers = 0,
                                       .num_groups = 0,
                                       .top_groups = 0,
                                       .routed_scale = 1.0f};

void read_v2_layers(const JsonNode& json, const ConfigDefaults&, ModelSpec& spec) {
  expect_string(json, "scoring_func", "softmax");
  // DeepSeek's code would divide by the sum of the chosen; transformers does not read it.
  if (json.boolean_or("norm_topk_prob", false))
    fail(ErrorCode::kUnsupported, json.where("norm_topk_prob"),
         " true: attend has DeepSeek-V2 with weights that are not normalized");
  const std::string method = json.find_string("topk_method").value_or("greedy");
  if (method != "greedy" && method != "group_limited_greedy")
    fail(ErrorCode::kUnsupported, json.where("topk_method"), " \"", method,
         "\": attend has greedy, group_limited_greedy");
  read_latent_layers(json, kV2Defaults, spec);
  read_deepseek_mlps(
      json, kV2Defaults,
      {.scores = kernels::RouterScores::kSoftmax, .weights_of = kernels::RouterWeights::kOfAll}, spec);
  if (method == "group_limited_greedy") return;
  for (LayerSpec& layer : spec.layers)
    if (auto* mlp = std::get_if<MoeMlpSpec>(&layer.mlp)) mlp->rule.groups = {};
}

}  // namespace

constinit const ModelArchitecture kDeepseekV2{
    .name = "DeepseekV2ForCausalLM",
    .read_layers = read_v2_layers,
    .defaults = {.vocab_size = 102400, .hidden_size = 4096, .max_position_embeddings = 2048}};

}  // namespace attend
