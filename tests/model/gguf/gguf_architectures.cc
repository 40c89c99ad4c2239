#include "tests/model/gguf/gguf_architectures.h"

namespace attend::test {

using nlohmann::json;

std::vector<GgufArchitecture> architectures() {
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
       .metadata = {},
       .permutes_qk = true},
      {.name = "llama",
       .hf = "MixtralForCausalLM",
       .fields = {{"num_local_experts", 4}, {"num_experts_per_tok", 2}},
       .metadata = {},
       .permutes_qk = true,
       .names = {{"block_sparse_moe.gate", "ffn_gate_inp"},
                 {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
                 {"block_sparse_moe.experts.w3", "ffn_up_exps"},
                 {"block_sparse_moe.experts.w2", "ffn_down_exps"}}},
      {.name = "qwen2", .hf = "Qwen2ForCausalLM", .fields = json::object(), .metadata = {}},
      {.name = "qwen3", .hf = "Qwen3ForCausalLM", .fields = json::object(), .metadata = {}},
      {.name = "qwen3moe",
       .hf = "Qwen3MoeForCausalLM",
       .fields = {{"num_local_experts", 4},
                  {"num_experts_per_tok", 2},
                  {"moe_intermediate_size", 256},
                  {"norm_topk_prob", true}},
       .metadata = {}},
      {.name = "gemma", .hf = "GemmaForCausalLM", .fields = gemma, .metadata = {}, .adds_one = true},
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
       .metadata = {},
       .names = {{"post_attention_layernorm", "post_attention_norm"}}},
      {.name = "olmoe",
       .hf = "OlmoeForCausalLM",
       .fields = {{"num_local_experts", 4}, {"num_experts_per_tok", 2}, {"norm_topk_prob", false}},
       .metadata = {}},
      {.name = "smollm3",
       .hf = "SmolLM3ForCausalLM",
       .fields = {{"num_hidden_layers", 5}},
       .metadata = {},
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

}  // namespace attend::test
