// ModelConfig: what config.json of a Hugging Face model says, in attend's words.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/tensor/dtype.h"

namespace attend {

// Rotary position embedding (arXiv 2104.09864) and its extensions, named as in config.json's rope_scaling.
enum class RopeType : uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                                   // linear, dynamic, llama3, yarn
  int rotary_dim = 0;                                    // even; head_dim unless partial
  int original_max_position_embeddings = 0;              // dynamic, llama3, yarn
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  double attention_factor = 0.0;                         // yarn; 0: 0.1 ln(factor) + 1
  double mscale = 0.0, mscale_all_dim = 0.0;             // yarn (DeepSeek); 0: not given
  bool truncate = true;                                  // yarn: whole dimensions at the ramp's ends
};

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
  std::vector<int32_t> eos_token_ids;  // config.json and generation_config.json
  std::optional<int32_t> bos_token_id;

  // The attention layers, for backends and pools.
  ModelGeometry geometry(DType activation_dtype, DType kv_dtype) const;
};

// Reads config.json (and generation_config.json when it is there) of a model directory. Throws
// Error(kNotFound), Error(kCorruptFile) naming file and field, or Error(kUnsupported) with what attend has.
ModelConfig read_config(const std::filesystem::path& directory);

// The architectures that load_model knows: "LlamaForCausalLM", ...
std::vector<std::string> supported_architectures();

}  // namespace attend
