#include "attend/model/architectures/hybrid/mamba2.h"

#include <string>

#include "attend/base/error.h"
#include "attend/kernels/recurrent/recurrent.h"

namespace attend {
namespace {

// An array of two numbers. The second one may be infinity, which transformers writes as an object.
void read_step_limits(const JsonNode& json, Mamba2Spec& mamba) {
  const auto limits = json.find("time_step_limit");
  if (!limits) return;
  const std::string expected = "an array of the smallest and the largest step";
  if (!limits->value().is_array() || limits->value().size() != 2) limits->reject(expected);
  const Json& smallest = limits->value()[0];
  const Json& largest = limits->value()[1];
  if (!smallest.is_number() || smallest.get<double>() < 0.0) limits->reject(expected);
  mamba.min_step = static_cast<float>(smallest.get<double>());
  if (largest.is_object() && largest.contains("__float__") && is_string(largest["__float__"], "Infinity"))
    return;
  if (!largest.is_number() || largest.get<double>() < smallest.get<double>()) limits->reject(expected);
  mamba.max_step = static_cast<float>(largest.get<double>());
}

}  // namespace

Mamba2Spec read_mamba2(const JsonNode& json, const Mamba2Fields& fields, float norm_eps, int64_t features,
                       const char* features_name) {
  const auto size = [&](const char* key, int missing) {
    return json.find_integer(key, 1, 1 << 16).value_or(missing);
  };
  Mamba2Spec mamba{.num_heads = size(fields.num_heads, 128),
                   .num_groups = size(fields.num_groups, fields.missing_groups),
                   .state_dim = size(fields.state_dim, fields.missing_state_dim),
                   .conv_kernel = size(fields.conv_kernel, 4),
                   .conv_bias = json.boolean_or(fields.conv_bias, true),
                   .in_bias = json.boolean_or("mamba_proj_bias", false),
                   .norm_eps = norm_eps};
  mamba.out_bias = mamba.in_bias;
  const auto head_dim = json.find(fields.head_dim);
  const int missing =
      fields.missing_head_dim > 0 ? fields.missing_head_dim : static_cast<int>(features / mamba.num_heads);
  mamba.head_dim =
      head_dim && !is_string(head_dim->value(), "auto") ? size(fields.head_dim, missing) : missing;
  if (features > 0 && int64_t{mamba.num_heads} * mamba.head_dim != features)
    fail(ErrorCode::kCorruptFile, json.where(fields.num_heads), " ", mamba.num_heads, " with ",
         fields.head_dim, " ", mamba.head_dim, ": expected a product of ", features_name, ", ", features);
  if (mamba.num_heads % mamba.num_groups != 0)
    fail(ErrorCode::kCorruptFile, json.where(fields.num_groups), " ", mamba.num_groups,
         ": expected a divisor of ", fields.num_heads, " ", mamba.num_heads);
  if (mamba.conv_kernel < 2 || mamba.conv_kernel > kernels::kMaxConvKernel)
    fail(ErrorCode::kUnsupported, json.where(fields.conv_kernel), " ", mamba.conv_kernel,
         ": attend supports 2 to ", kernels::kMaxConvKernel);
  read_step_limits(json, mamba);
  return mamba;
}

Mamba2Spec read_mamba2(const JsonNode& json, const ModelSpec& spec) {
  const int64_t expand = json.find_integer("mamba_expand", 1, 1 << 16).value_or(2);
  return read_mamba2(json, Mamba2Fields(), spec.norm_eps, expand * spec.hidden_size);
}

}  // namespace attend
