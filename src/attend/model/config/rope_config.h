// RopeConfig: which rotary position embedding a model has.
#pragma once

#include <cstdint>
#include <vector>

#pragma GCC visibility push(default)
namespace attend {

// Rotary position embedding (arXiv 2104.09864) and its extensions, named as in config.json's rope_scaling.
//
// kDynamic and kLongRope make keys depend on the length of their request's prompt (rope.h), so a cached
// prefix serves another request only when both prompts are within original_max_position_embeddings, or, of
// kLongRope, when both are beyond it.
enum class RopeType : uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                                      // linear, dynamic, llama3, yarn, longrope
  int rotary_dim = 0;                                       // even; head_dim unless partial
  bool interleaved = false;                                 // pairs are (2i, 2i + 1), not (i, i + d / 2)
  int original_max_position_embeddings = 0;                 // dynamic, llama3, yarn, longrope
  double low_freq_factor = 1.0, high_freq_factor = 4.0;     // llama3
  double beta_fast = 32.0, beta_slow = 1.0;                 // yarn
  double attention_factor = 0.0;                            // yarn, longrope; 0: what follows from factor
  double mscale = 0.0, mscale_all_dim = 0.0;                // yarn (DeepSeek); 0: not given
  bool truncate = true;                                     // yarn: whole dimensions at the ramp's ends
  std::vector<double> short_factor = {}, long_factor = {};  // longrope: of each pair
};

}  // namespace attend
#pragma GCC visibility pop
