#include "attend/bench/model/model_shapes.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "attend/base/error.h"

namespace attend::bench {
namespace {

struct Shape {
  const char* architecture;
  int layers, hidden, intermediate, vocab, q_heads, kv_heads, head_dim;
  bool tied;
  std::string more = "{}";  // fields of config.json that are added or replaced
};

constexpr const char* kQwen3Moe = R"({"num_experts": 128, "num_experts_per_tok": 8,
  "moe_intermediate_size": 768, "norm_topk_prob": true})";
constexpr const char* kGptOss = R"({"num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
  "rope_theta": 150000, "attention_bias": true, "quantization_config": {"quant_method": "mxfp4"},
  "rope_scaling": {"rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": false,
                   "original_max_position_embeddings": 4096}})";
constexpr const char* kDeepseekV2Lite = R"({"q_lora_rank": null, "kv_lora_rank": 512,
  "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2, "moe_intermediate_size": 1408,
  "first_k_dense_replace": 1, "rms_norm_eps": 1e-6, "rope_theta": 10000, "max_position_embeddings": 163840,
  "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
                   "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096}})";
constexpr const char* kDeepseekV3 = R"({"kv_lora_rank": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000,
  "max_position_embeddings": 163840,
  "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                   "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}})";
constexpr const char* kQwen3Next = R"({"num_experts": 512, "num_experts_per_tok": 10,
  "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "norm_topk_prob": true,
  "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
  "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.25,
  "rope_theta": 10000000, "rms_norm_eps": 1e-6, "max_position_embeddings": 262144})";
constexpr const char* kQwen35Moe = R"({"model_type": "qwen3_5_moe_text", "num_experts": 256,
  "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
  "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
  "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-6,
  "max_position_embeddings": 262144,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25}})";
constexpr const char* kNemotron3Nano = R"({
  "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
  "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "chunk_size": 128,
  "n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856,
  "moe_shared_expert_intermediate_size": 3712, "routed_scaling_factor": 2.5, "layer_norm_epsilon": 1e-5,
  "max_position_embeddings": 262144})";

constexpr const char* kKimiLinear = R"({"kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 256, "num_experts_per_token": 8,
  "num_shared_experts": 1, "moe_intermediate_size": 1024, "first_k_dense_replace": 1,
  "routed_scaling_factor": 2.446, "num_expert_group": 1, "topk_group": 1, "moe_renormalize": true,
  "moe_router_activation_func": "sigmoid", "mla_use_nope": true, "max_position_embeddings": 1048576,
  "linear_attn_config": {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
    "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26],
    "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4}})";

constexpr const char* kGemma4E4b = R"({"num_kv_shared_layers": 18, "sliding_window": 512,
  "final_logit_softcapping": 30.0})";
constexpr const char* kGemma4Moe = R"({"attention_k_eq_v": true, "num_global_key_value_heads": 2,
  "sliding_window": 1024, "hidden_size_per_layer_input": 0, "enable_moe_block": true, "num_experts": 128,
  "top_k_experts": 8, "moe_intermediate_size": 704, "final_logit_softcapping": 30.0})";
constexpr const char* kGemma4Dense = R"({"attention_k_eq_v": true, "num_global_key_value_heads": 4,
  "sliding_window": 1024, "hidden_size_per_layer_input": 0, "final_logit_softcapping": 30.0})";

// Every fifth layer has full attention.
std::string gemma4_e2b() {
  nlohmann::json fields = {{"num_kv_shared_layers", 20},
                           {"use_double_wide_mlp", true},
                           {"sliding_window", 512},
                           {"final_logit_softcapping", 30.0}};
  for (int i = 1; i <= 35; ++i)
    fields["layer_types"].push_back(i % 5 == 0 ? "full_attention" : "sliding_attention");
  return fields.dump();
}

const std::map<std::string, Shape>& shapes() {
  static const std::map<std::string, Shape> table = {
      {"llama-3.1-8b", {"LlamaForCausalLM", 32, 4096, 14336, 128256, 32, 8, 128, false}},
      {"llama-3.2-1b", {"LlamaForCausalLM", 16, 2048, 8192, 128256, 32, 8, 64, true}},
      {"qwen3-0.6b", {"Qwen3ForCausalLM", 28, 1024, 3072, 151936, 16, 8, 128, true}},
      {"qwen3-30b-a3b", {"Qwen3MoeForCausalLM", 48, 2048, 6144, 151936, 32, 4, 128, false, kQwen3Moe}},
      {"gpt-oss-20b", {"GptOssForCausalLM", 24, 2880, 2880, 201088, 64, 8, 64, false, kGptOss}},
      {"qwen3-next-80b-a3b", {"Qwen3NextForCausalLM", 48, 2048, 5120, 151936, 16, 2, 256, false, kQwen3Next}},
      {"qwen3.5-35b-a3b", {"Qwen3_5MoeForCausalLM", 40, 2048, 512, 248320, 16, 2, 256, false, kQwen35Moe}},
      {"nemotron-3-nano",
       {"NemotronHForCausalLM", 52, 2688, 1856, 131072, 32, 2, 128, false, kNemotron3Nano}},
      {"kimi-linear-48b-a3b",
       {"KimiLinearForCausalLM", 27, 2304, 9216, 163840, 32, 32, 72, false, kKimiLinear}},
      {"gemma-4-e2b", {"Gemma4ForCausalLM", 35, 1536, 6144, 262144, 8, 1, 256, true, gemma4_e2b()}},
      {"gemma-4-e4b", {"Gemma4ForCausalLM", 42, 2560, 10240, 262144, 8, 2, 256, true, kGemma4E4b}},
      {"gemma-4-26b-a4b", {"Gemma4ForCausalLM", 30, 2816, 2112, 262144, 16, 8, 256, true, kGemma4Moe}},
      {"gemma-4-31b", {"Gemma4ForCausalLM", 60, 5376, 21504, 262144, 32, 16, 256, true, kGemma4Dense}},
      // head_dim of an MLA model is not read.
      {"deepseek-v2-lite",
       {"DeepseekV2ForCausalLM", 27, 2048, 10944, 102400, 16, 16, 192, false, kDeepseekV2Lite}},
      {"deepseek-v3", {"DeepseekV3ForCausalLM", 61, 7168, 18432, 129280, 128, 128, 192, false, kDeepseekV3}},
  };
  return table;
}

// Returns the config.json of a shape.
nlohmann::json shape_config(const std::string& shape) {
  const auto found = shapes().find(shape);
  if (found == shapes().end())
    fail(ErrorCode::kInvalidArgument, "--shape ", shape, ": expected one of ", shape_names());
  const Shape& s = found->second;
  nlohmann::json config = {{"architectures", {s.architecture}},
                           {"num_hidden_layers", s.layers},
                           {"hidden_size", s.hidden},
                           {"intermediate_size", s.intermediate},
                           {"vocab_size", s.vocab},
                           {"num_attention_heads", s.q_heads},
                           {"num_key_value_heads", s.kv_heads},
                           {"head_dim", s.head_dim},
                           {"hidden_act", "silu"},
                           {"max_position_embeddings", 131072},
                           {"rms_norm_eps", 1e-5},
                           {"rope_theta", 500000.0},
                           {"tie_word_embeddings", s.tied},
                           {"torch_dtype", "bfloat16"}};
  config.update(nlohmann::json::parse(s.more));
  return config;
}

ModelSpec spread_experts(ModelSpec spec) {
  for (size_t i = 0; i < spec.layers.size(); ++i)
    if (auto* const moe = find_moe(spec.layers[i].mlp)) moe->rule.spread = static_cast<uint32_t>(i) + 1;
  return spec;
}

}  // namespace

std::string shape_names() {
  std::string names;
  for (const auto& [name, values] : shapes()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

ModelSpec shape_model(const std::string& shape) {
  return spread_experts(parse_config(shape_config(shape).dump(), "--shape " + shape));
}

ModelSpec shape_draft(SpeculativeAlgorithm algorithm, const ModelSpec& target, const std::string& shape) {
  require(has_draft_head(algorithm), "speculative_algorithm ", to_string(algorithm), ": has no draft head");
  if (algorithm == SpeculativeAlgorithm::kNextn)
    return spread_experts(parse_draft_config(shape_config(shape).dump(), "--shape " + shape));
  constexpr int kHeadDim = 128, kDraftVocab = 32000;
  const LayerSpec& first = target.layers.front();
  const auto* const attention = std::get_if<AttentionSpec>(&first.mixer);
  const auto* const mlp = std::get_if<GatedMlpSpec>(&first.mlp);
  const int num_heads = attention != nullptr ? attention->num_q_heads : target.hidden_size / kHeadDim;
  const bool is_eagle3 = algorithm == SpeculativeAlgorithm::kEagle3;
  const nlohmann::json config = {
      {"architectures", {is_eagle3 ? "LlamaForCausalLMEagle3" : "LlamaForCausalLMEagle"}},
      {"num_hidden_layers", 1},
      {"hidden_size", target.hidden_size},
      {"intermediate_size", mlp != nullptr ? mlp->intermediate_size : 6 * target.hidden_size},
      {"vocab_size", target.vocab_size},
      {"draft_vocab_size", std::min(kDraftVocab, target.vocab_size)},
      {"num_attention_heads", num_heads},
      {"num_key_value_heads", attention != nullptr ? attention->num_kv_heads : num_heads},
      {"head_dim", attention != nullptr ? attention->head_dim : kHeadDim},
      {"hidden_act", "silu"},
      {"max_position_embeddings", 131072},
      {"rms_norm_eps", 1e-5}};
  ModelSpec draft = parse_config(config.dump(), "draft head");
  draft.dtype = target.dtype;
  return draft;
}

}  // namespace attend::bench
