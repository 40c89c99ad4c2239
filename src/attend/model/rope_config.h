// RopeConfig: which rotary position embedding a model has.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
namespace attend {

// Rotary position embedding (arXiv 2104.09864) and its extensions, named as in config.json's rope_scaling.
//
// kDynamic makes keys depend on the length of their request's prompt (rope.h), so a cached prefix serves
// another request only when both prompts are within original_max_position_embeddings.
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

}  // namespace attend
#pragma GCC visibility pop
