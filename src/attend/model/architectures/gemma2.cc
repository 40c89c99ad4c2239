// Gemma2ForCausalLM: norms before and behind each sublayer, scaled embeddings, caps of scores and of logits,
// and a window for every other layer.
#include "attend/model/architectures/gemma.h"

namespace attend {
namespace {

void read_gemma2_config(const JsonNode& json, ModelSpec& spec) {
  read_gemma_config(json, spec);
  const float cap = read_logit_cap(json, "attn_logit_softcapping", 50.0f);
  for_each_attention(spec, [&](AttentionSpec& attention) { attention.logit_cap = cap; });
  spec.final_logit_cap = read_logit_cap(json, "final_logit_softcapping", 30.0f);
  read_alternating_windows(json, /*full_every=*/2, kGemmaWindow, spec);
}

}  // namespace

constinit const ModelArchitecture kGemma2{.name = "Gemma2ForCausalLM",
                                          .read_config = read_gemma2_config,
                                          .defaults = kGemmaDefaults,
                                          .names = kGemmaNames};

}  // namespace attend
