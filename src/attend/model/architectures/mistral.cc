// MistralForCausalLM and MinistralForCausalLM: Llama without biases; layers slide that layer_types names, all
// of them without it. sliding_window null turns that off, an absent one is 4096.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_mistral_config(const JsonNode& json, ModelSpec& spec) {
  const bool turned_off = json.mentions("sliding_window") && !json.has("sliding_window");
  std::vector<bool> slides(spec.layers.size(), !turned_off);
  // transformers reads the field of MinistralForCausalLM alone; one that MistralForCausalLM has is meant too.
  if (const auto types = json.find("layer_types")) slides = read_layer_types(*types, spec.num_layers());
  read_windows(json, slides, spec);
}

}  // namespace

constinit const ModelArchitecture kMinistral{
    .name = "MinistralForCausalLM", .read_config = read_mistral_config, .defaults = {.num_kv_heads = 8}};

constinit const ModelArchitecture kMistral{
    .name = "MistralForCausalLM", .read_config = read_mistral_config, .defaults = {.num_kv_heads = 8}};

}  // namespace attend
