// Models and machines as plain values, for tests of backend selection.
#pragma once

#include "attend/attention/resolver.h"

namespace attend::test {

inline Hardware machine(Architecture architecture) {
  return {.architecture = architecture, .name = std::string(to_string(architecture))};
}

// Llama 3 8B.
inline Requirement llama() {
  return {.num_q_heads = 32,
          .q_heads_per_kv = 4,
          .head_dims = {128, 128},
          .dtype = DType::kBF16,
          .kv_dtype = DType::kBF16};
}
// Llama 2 7B: one KV head per query head.
inline Requirement llama2() {
  Requirement model = llama();
  model.q_heads_per_kv = 1;
  return model;
}
// MiMo: K of 192, V of 128.
inline Requirement unequal_head_dims() {
  Requirement model = llama();
  model.head_dims = {192, 128};
  return model;
}
inline Requirement gpt_oss() {
  Requirement model = llama();
  model.head_dims = {64, 64};
  model.window = model.sinks = true;
  return model;
}
inline Requirement llama4() {
  Requirement model = llama();
  model.chunk = true;
  return model;
}
inline Requirement gemma2() {
  Requirement model = llama();
  model.head_dims = {256, 256};
  model.window = model.logit_cap = true;
  return model;
}
inline Requirement whisper() {
  Requirement model = llama();
  model.head_dims = {64, 64};
  model.cross = true;
  return model;
}
inline Requirement deepseek_v3() {
  return {.kind = KvKind::kMla,
          .num_q_heads = 128,
          .q_heads_per_kv = 128,
          .head_dims = {576, 512},
          .dtype = DType::kBF16,
          .kv_dtype = DType::kBF16};
}

// DeepSeek-V3.2: an indexer selects the keys of each query.
inline Requirement deepseek_v32() {
  Requirement model = deepseek_v3();
  model.indexer = true;
  return model;
}

inline Requirement with_drafts(Requirement model, Speculation speculation) {
  model.speculation = speculation;
  return model;
}
inline Requirement deterministic(Requirement model) {
  model.deterministic = true;
  return model;
}
inline Requirement with_kv(Requirement model, DType kv_dtype) {
  model.kv_dtype = kv_dtype;
  return model;
}

}  // namespace attend::test
