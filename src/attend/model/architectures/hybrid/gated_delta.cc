#include "attend/model/architectures/hybrid/gated_delta.h"

#include <string>

#include "attend/base/error.h"
#include "attend/kernels/recurrent/recurrent.h"

namespace attend {

std::vector<bool> read_linear_layers(const JsonNode& json, size_t num_layers) {
  std::vector<bool> linear;
  const auto types = json.find("layer_types");
  if (!types) {
    const auto interval =
        static_cast<size_t>(json.find_integer("full_attention_interval", 1, 1 << 16).value_or(4));
    for (size_t i = 0; i < num_layers; ++i) linear.push_back((i + 1) % interval != 0);
    return linear;
  }
  const std::string expected =
      "an array of " + std::to_string(num_layers) + " times \"linear_attention\" or \"full_attention\"";
  if (!types->value().is_array() || types->value().size() != num_layers) types->reject(expected);
  for (const Json& type : types->value()) {
    linear.push_back(is_string(type, "linear_attention"));
    if (!linear.back() && !is_string(type, "full_attention")) types->reject(expected);
  }
  return linear;
}

GatedDeltaSpec read_gated_delta(const JsonNode& json, GatedDeltaSpec spec) {
  const auto read = [&](const char* key, int& size) {
    size = json.find_integer(key, 1, 1 << 12).value_or(size);
  };
  read("linear_num_key_heads", spec.num_k_heads);
  read("linear_num_value_heads", spec.num_v_heads);
  read("linear_key_head_dim", spec.head_dim_k);
  read("linear_value_head_dim", spec.head_dim_v);
  read("linear_conv_kernel_dim", spec.conv_kernel);
  if (spec.num_v_heads % spec.num_k_heads != 0)
    fail(ErrorCode::kCorruptFile, json.where("linear_num_value_heads"), " ", spec.num_v_heads,
         ": expected a multiple of linear_num_key_heads ", spec.num_k_heads);
  if (spec.head_dim_k > kernels::kMaxDeltaHeadDim)
    fail(ErrorCode::kUnsupported, json.where("linear_key_head_dim"), " ", spec.head_dim_k,
         ": attend supports at most ", kernels::kMaxDeltaHeadDim);
  if (spec.conv_kernel < 2 || spec.conv_kernel > kernels::kMaxConvKernel)
    fail(ErrorCode::kUnsupported, json.where("linear_conv_kernel_dim"), " ", spec.conv_kernel,
         ": attend supports 2 to ", kernels::kMaxConvKernel);
  expect_string(json, "mamba_ssm_dtype", "float32");
  expect_string(json, "output_gate_type", "silu");
  return spec;
}

}  // namespace attend
