// ModelConfig: what config.json of a Hugging Face model says, in attend's words.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/model/rope_config.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  int num_layers = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int vocab_size = 0;
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  bool attention_bias = false;  // q, k, v
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of each q and k head before RoPE (Qwen3)
  bool tie_word_embeddings = false;
  std::vector<int> window_left;  // [num_layers]; inclusive, -1: full attention
  RopeConfig rope;
  DType dtype = DType::kF32;           // of the weights as config.json names it
  std::vector<int32_t> eos_token_ids;  // config.json's, then what generation_config.json adds
  std::optional<int32_t> bos_token_id;

  // The attention layers, for backends and pools.
  ModelGeometry geometry(DType activation_dtype, DType kv_dtype) const;
  // Tokens of the longest sequence that the position embedding serves: max_position_embeddings, times what
  // rope scaling stretches it by.
  int max_context_len() const;
};

// Reads config.json (and generation_config.json when it is there) of a model directory. An absent field means
// what transformers takes it for; a field that attend does not know is ignored. Throws Error(kNotFound),
// Error(kCorruptFile) naming file and field, or Error(kUnsupported) with what attend has.
ModelConfig read_config(const std::filesystem::path& directory);

// The architectures that load_model knows: "LlamaForCausalLM", ...
std::vector<std::string> supported_architectures();

}  // namespace attend
#pragma GCC visibility pop
