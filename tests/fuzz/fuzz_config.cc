// config.json; behind a NUL byte, generation_config.json.
#include <cmath>

#include "attend/model/model_spec.h"
#include "tests/fuzz/fuzz.h"

namespace attend::fuzz {
namespace {

// What pools, backends and the decoder rely on.
void check(const ModelSpec& config) {
  expect(config.num_layers >= 1 && config.hidden_size >= 1 && config.vocab_size >= 1);
  expect(config.num_kv_heads >= 1 && config.num_q_heads % config.num_kv_heads == 0 && config.head_dim >= 1);
  expect(config.window_left.size() == static_cast<size_t>(config.num_layers));
  for (const int window : config.window_left) expect(window >= -1);
  expect(config.max_context_len() >= 1);
  expect(config.rope.rotary_dim >= 2 && config.rope.rotary_dim % 2 == 0 &&
         config.rope.rotary_dim <= config.head_dim);
  expect(std::isfinite(config.rope.theta) && config.rope.theta > 1.0);
  expect(std::isfinite(config.rope.factor) && config.rope.factor > 0.0);
  for (const int32_t id : config.eos_token_ids) expect(id >= 0);
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
    const ModelSpec config = read_config(fuzz::folder());
    fuzz::check(config);
    // A plausible number of layers: the geometry of 65,536 takes longer than the rest together.
    if (config.num_layers <= 64) config.geometry(DType::kF32, config.dtype);
  });
  return 0;
}
