// config.json; behind a NUL byte, generation_config.json.
#include <cmath>

#include "attend/model/model_spec.h"
#include "tests/fuzz/fuzz.h"

namespace attend::fuzz {
namespace {

// What pools, backends and the decoder rely on.
void check(const ModelSpec& spec) {
  expect(spec.num_layers() >= 1 && spec.hidden_size >= 1 && spec.vocab_size >= 1 && !spec.ropes.empty());
  expect(spec.max_context_len() >= 1);
  for (const LayerSpec& layer : spec.layers) {
    const auto& attention = std::get<AttentionSpec>(layer.mixer);
    expect(attention.num_kv_heads >= 1 && attention.num_q_heads % attention.num_kv_heads == 0);
    expect(attention.head_dim >= 1 && attention.window_left >= -1 && attention.scale > 0.0f);
    const RopeConfig& rope = spec.ropes.at(static_cast<size_t>(attention.rope_set));
    expect(rope.rotary_dim >= 2 && rope.rotary_dim % 2 == 0 && rope.rotary_dim <= attention.head_dim);
    expect(std::get<GatedMlpSpec>(layer.mlp).intermediate_size >= 1);
  }
  for (const RopeConfig& rope : spec.ropes) {
    expect(std::isfinite(rope.theta) && rope.theta > 1.0);
    expect(std::isfinite(rope.factor) && rope.factor > 0.0);
  }
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
  fuzz::may_refuse([] {
    const ModelSpec spec = read_config(fuzz::folder());
    fuzz::check(spec);
    // A plausible number of layers: the geometry of 65,536 takes longer than the rest together.
    if (spec.num_layers() <= 64) spec.geometry(DType::kF32, spec.dtype);
  });
  return 0;
}
