// MistralForCausalLM: Llama without biases; every layer slides. sliding_window null turns that off, an absent
// one is 4096.
#include "attend/base/error.h"
#include "attend/model/architecture.h"

namespace attend {
namespace {

void read_mistral_config(const JsonNode& json, ModelSpec& spec) {
  const bool turned_off = json.mentions("sliding_window") && !json.has("sliding_window");
  const int window = json.find_integer("sliding_window", 1, 1 << 30).value_or(4096);
  if (!turned_off)
    for_each_attention(spec, [&](AttentionSpec& attention) { attention.window_left = window - 1; });

  // transformers ignores the field here; one that says something else describes another model.
  const char* expected_type = turned_off ? "full_attention" : "sliding_attention";
  if (const auto types = json.find("layer_types"))
    for (const Json& type : types->value())
      if (!is_string(type, expected_type))
        types->unsupported(excerpt(types->value()), ": all layers of MistralForCausalLM are alike, expected ",
                           expected_type);
}

}  // namespace

constinit const ModelArchitecture kMistral{
    .name = "MistralForCausalLM", .read_config = read_mistral_config, .default_num_kv_heads = 8, .names = {}};

}  // namespace attend
