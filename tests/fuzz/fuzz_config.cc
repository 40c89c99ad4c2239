// Input: config.json, a NUL byte, and generation_config.json.
#include <cmath>

#include "attend/model/config/model_spec.h"
#include "tests/fuzz/fuzz.h"

namespace attend::fuzz {
namespace {

// A layer's RoPE rotates at most `head_dim` elements. rope_set -1: no RoPE.
void check_rope(const ModelSpec& spec, int rope_set, int head_dim) {
  if (rope_set == -1) return;
  const RopeConfig& rope = spec.ropes.at(static_cast<size_t>(rope_set));
  expect(rope.rotary_dim >= 2 && rope.rotary_dim % 2 == 0 && rope.rotary_dim <= head_dim);
}

void check(const ModelSpec& spec, const AttentionSpec& attention) {
  expect(attention.num_kv_heads >= 1 && attention.num_q_heads % attention.num_kv_heads == 0);
  expect(attention.head_dim >= 1 && attention.window_left >= -1 && attention.scale > 0.0f);
  expect(std::isfinite(attention.scale) && std::isfinite(attention.logit_cap) && attention.logit_cap >= 0.0f);
  check_rope(spec, attention.rope_set, attention.head_dim);
}

void check(const ModelSpec& spec, const MlaSpec& mla) {
  expect(mla.num_heads >= 1 && mla.q_lora_rank >= 0 && mla.kv_lora_rank >= 1 && mla.nope_dim >= 1 &&
         mla.v_dim >= 1);
  expect(std::isfinite(mla.scale) && mla.scale > 0.0f);
  check_rope(spec, mla.rope_set, mla.rope_dim);
}

void check(const ModelSpec&, const GatedDeltaSpec& delta) {
  expect(delta.num_k_heads >= 1 && delta.num_v_heads >= 1 && delta.num_v_heads % delta.num_k_heads == 0);
  expect(delta.head_dim_k >= 1 && delta.head_dim_v >= 1 && delta.conv_kernel >= 2);
}

void check(const ModelSpec&, const Mamba2Spec& mamba) {
  expect(mamba.num_groups >= 1 && mamba.num_heads % mamba.num_groups == 0 && mamba.head_dim >= 1);
  expect(mamba.state_dim >= 1 && mamba.conv_kernel >= 2);
  expect(std::isfinite(mamba.min_step) && mamba.min_step >= 0.0f && mamba.max_step >= mamba.min_step);
}

void check(const ModelSpec& spec, const AttentionMamba2Spec& both) {
  check(spec, both.attention);
  check(spec, both.mamba);
}

void check(const ModelSpec&, std::monostate) {}

void check(const ModelSpec&, const ShortConvSpec& conv) { expect(conv.kernel >= 2); }

// Properties that pools, backends and the decoder rely on.
void check(const ModelSpec& spec) {
  expect(spec.num_layers() >= 1 && spec.hidden_size >= 1 && spec.vocab_size >= 1);
  expect(spec.max_context_len() >= 1);
  for (const LayerSpec& layer : spec.layers) {
    std::visit([&](const auto& mixer) { check(spec, mixer); }, layer.mixer);
    if (const auto* dense = std::get_if<GatedMlpSpec>(&layer.mlp)) expect(dense->intermediate_size >= 1);
    if (const auto* plain = std::get_if<PlainMlpSpec>(&layer.mlp)) expect(plain->intermediate_size >= 1);
    if (const auto* experts = std::get_if<MoeMlpSpec>(&layer.mlp))
      expect(experts->intermediate_size >= 1 && experts->top_k >= 1 &&
             experts->top_k <= experts->num_experts);
  }
  for (const RopeConfig& rope : spec.ropes) {
    expect(std::isfinite(rope.theta) && rope.theta > 1.0);
    expect(std::isfinite(rope.factor) && rope.factor > 0.0);
    const auto num_factors = static_cast<size_t>(rope.type == RopeType::kLongRope ? rope.rotary_dim / 2 : 0);
    expect(rope.short_factor.size() == num_factors && rope.long_factor.size() == num_factors);
    expect(rope.type != RopeType::kLongRope || rope.original_max_position_embeddings > 1);
  }
  expect(std::isfinite(spec.final_logit_cap) && spec.final_logit_cap >= 0.0f);
  expect(std::isfinite(spec.embedding_scale) && spec.embedding_scale > 0.0f);
  const Quantization& quantization = spec.quantization;
  expect(quantization.group_ins >= 0 && quantization.group_ins % 32 == 0 && quantization.group_outs >= 0);
  expect(to_string(quantization).empty() == (quantization.storage == WeightStorage::kPlain));
  expect(std::isfinite(bytes_per_weight(quantization)));
  for (const int32_t id : spec.eos_token_ids) expect(id >= 0);
}

}  // namespace
}  // namespace attend::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attend;
  const std::string_view text = fuzz::text_of(data, size);
  const size_t split = text.find('\0');
  fuzz::write_file("config.json", text.substr(0, split));
  std::filesystem::remove(fuzz::folder() / "generation_config.json");
  if (split != text.npos) fuzz::write_file("generation_config.json", text.substr(split + 1));
  fuzz::may_reject([] {
    const ModelSpec spec = read_config(fuzz::folder());
    fuzz::check(spec);
    // Limits the number of layers: the geometry of 65,536 layers takes longer than everything else.
    if (spec.num_layers() <= 64) spec.geometry(DType::kF32, spec.dtype);
  });
  return 0;
}
