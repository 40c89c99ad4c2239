// What the Gemma models share.
#pragma once

#include "attend/model/architectures/architecture.h"

namespace attend {

inline constexpr ConfigDefaults kGemmaDefaults{.vocab_size = 256000,
                                               .hidden_size = 2304,
                                               .intermediate_size = 9216,
                                               .num_layers = 26,
                                               .num_q_heads = 8,
                                               .num_kv_heads = 4,
                                               .head_dim = 256,
                                               .max_position_embeddings = 8192,
                                               .norm_eps = 1e-6,
                                               .tie_word_embeddings = true,
                                               .activation_key = "hidden_activation",
                                               .activation = "gelu_pytorch_tanh"};

inline constexpr DecoderNames kGemmaNames{.mlp_norm = "pre_feedforward_layernorm"};

// Norms, biases, scales: all but caps, windows and rotary embeddings. Refuses attention in both directions.
void read_gemma_config(const JsonNode& json, ModelSpec& spec);
// The same of a model that may attend in both directions.
void read_gemma_scales(const JsonNode& json, ModelSpec& spec);

// A field that is null caps nothing.
float read_logit_cap(const JsonNode& json, const char* key, float missing);

inline constexpr int kGemmaWindow = 4096;

}  // namespace attend
