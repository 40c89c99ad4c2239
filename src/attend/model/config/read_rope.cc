#include "attend/model/config/read_rope.h"

#include <array>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/log.h"

namespace attend {
namespace {

constexpr int kMaxPositions = 1 << 30;
// Far above the factor of any model, and below factors that reduce every frequency to 0.
constexpr double kMaxFactor = 1 << 20;

constexpr std::array<std::pair<std::string_view, RopeType>, 9> kRopeTypes{{
    {"default", RopeType::kDefault},
    {"linear", RopeType::kLinear},
    {"dynamic", RopeType::kDynamic},
    {"llama3", RopeType::kLlama3},
    {"yarn", RopeType::kYarn},
    {"longrope", RopeType::kLongRope},
    {"proportional", RopeType::kProportional},
    {"su", RopeType::kLongRope},    // former name, in old Phi-3 checkpoints
    {"mrope", RopeType::kDefault},  // positions on three axes (Qwen2-VL), which are equal for text
}};

// Finds the object with the scaling of positions: rope_scaling, or rope_parameters as transformers 5 writes.
std::optional<JsonNode> find_scaling(const JsonNode& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (std::optional<JsonNode> scaling = config.find(key); scaling && scaling->object_size() > 0)
      return scaling;
  return std::nullopt;
}

RopeType read_type(const JsonNode& scaling) {
  const char* key = scaling.has("rope_type") ? "rope_type" : "type";
  const std::string name = scaling.find_string(key).value_or("default");
  std::string known;
  for (const auto& [type_name, type] : kRopeTypes) {
    // Old Phi-3 checkpoints also name longrope "yarn".
    if (name == type_name)
      return type == RopeType::kYarn && scaling.has("short_factor") ? RopeType::kLongRope : type;
    known += (known.empty() ? "" : ", ") + std::string(type_name);
  }
  fail(ErrorCode::kUnsupported, scaling.where(key), " \"", name, "\": attend supports ", known);
}

// Reads the ratio of the extended context length to the original one. Factors below 1 extend nothing, and the
// formulas are not defined for them.
double read_factor(const JsonNode& scaling) {
  const double factor = scaling.positive("factor");
  if (factor < 1.0 || factor > kMaxFactor) scaling.reject("factor", "a number from 1 to 1048576");
  return factor;
}

// As in transformers, the field next to rope_scaling has priority over the one inside it.
int read_original_length(const JsonNode& config, const JsonNode& scaling, int max_position_embeddings,
                         int missing = 0) {
  constexpr const char* kKey = "original_max_position_embeddings";
  const JsonNode& holder = config.has(kKey) ? config : scaling;
  const int length =
      holder.find_integer(kKey, 1, kMaxPositions).value_or(missing == 0 ? max_position_embeddings : missing);
  if (length > max_position_embeddings)
    log_warning(holder.where(kKey), " ", length, ": more than max_position_embeddings ",
                max_position_embeddings, ", the number of positions that attend uses");
  return length;
}

void read_llama3(const JsonNode& scaling, RopeConfig& rope) {
  rope.factor = read_factor(scaling);
  rope.low_freq_factor = scaling.positive("low_freq_factor");
  rope.high_freq_factor = scaling.positive("high_freq_factor");
  if (rope.high_freq_factor <= rope.low_freq_factor)
    scaling.reject("high_freq_factor", "more than low_freq_factor");
}

// Reads a multiplier of q and k, or a factor of it. It is near 1 in every model; above the limit scores
// overflow.
std::optional<double> read_multiplier(const JsonNode& scaling, const char* key) {
  constexpr double kMaxMultiplier = 1024.0;
  const std::optional<double> share = scaling.find_positive(key);
  if (share && *share > kMaxMultiplier) scaling.reject(key, "a number above 0, at most 1024");
  return share;
}

void read_yarn(const JsonNode& scaling, int max_position_embeddings, RopeConfig& rope) {
  // If the factor is null, it is the ratio of the two lengths.
  const bool by_lengths = scaling.mentions("factor") && !scaling.has("factor") &&
                          rope.original_max_position_embeddings < max_position_embeddings;
  rope.factor = by_lengths ? 1.0 * max_position_embeddings / rope.original_max_position_embeddings
                           : read_factor(scaling);
  rope.beta_fast = scaling.find_positive("beta_fast").value_or(rope.beta_fast);
  rope.beta_slow = scaling.find_positive("beta_slow").value_or(rope.beta_slow);
  if (rope.beta_fast <= rope.beta_slow)
    fail(ErrorCode::kCorruptFile, scaling.where("beta_fast"), " ", rope.beta_fast,
         ": expected more than beta_slow ", rope.beta_slow);
  rope.attention_factor = read_multiplier(scaling, "attention_factor").value_or(rope.attention_factor);
  rope.mscale = read_multiplier(scaling, "mscale").value_or(rope.mscale);
  rope.mscale_all_dim = read_multiplier(scaling, "mscale_all_dim").value_or(rope.mscale_all_dim);
  rope.truncate = scaling.find_boolean("truncate").value_or(rope.truncate);
}

// Reads one number per rotated pair.
std::vector<double> read_factors(const JsonNode& scaling, const char* key, int num_pairs) {
  const JsonNode factors = scaling.at(key);
  if (!factors.value().is_array() || factors.array_size() != static_cast<size_t>(num_pairs))
    factors.reject("an array of " + std::to_string(num_pairs) + " numbers, one per rotated pair");
  std::vector<double> read;
  for (size_t i = 0; i < factors.array_size(); ++i) {
    read.push_back(factors.at(i).positive());
    // Much smaller factors would give angles that are not finite.
    if (read.back() > kMaxFactor || read.back() < 1.0 / kMaxFactor)
      factors.at(i).reject("a number from 1 / 1048576 to 1048576");
  }
  return read;
}

void read_longrope(const JsonNode& scaling, int max_position_embeddings, RopeConfig& rope) {
  rope.short_factor = read_factors(scaling, "short_factor", rope.rotary_dim / 2);
  rope.long_factor = read_factors(scaling, "long_factor", rope.rotary_dim / 2);
  // The attention factor divides by the logarithm of the original length.
  if (rope.original_max_position_embeddings < 2)
    scaling.reject("original_max_position_embeddings", "an integer from 2 to max_position_embeddings");
  rope.factor = scaling.has("factor") ? read_factor(scaling)
                                      : 1.0 * max_position_embeddings / rope.original_max_position_embeddings;
  rope.attention_factor = read_multiplier(scaling, "attention_factor").value_or(rope.attention_factor);
}

int read_rotary_dim(const JsonNode& holder, int head_dim, double missing) {
  const double share = holder.find_positive("partial_rotary_factor").value_or(missing);
  const int rotary_dim = share <= 1.0 ? static_cast<int>(head_dim * share) : 0;
  // The dynamic type divides by rotary_dim - 2.
  if (rotary_dim < 4 || rotary_dim % 2 != 0) {
    if (holder.has("partial_rotary_factor"))
      holder.reject("partial_rotary_factor", "a share of head_dim " + std::to_string(head_dim) +
                                                 " that is an even number from 4 to head_dim");
    fail(ErrorCode::kCorruptFile, holder.where("head_dim"), " ", head_dim,
         ": expected an even number of at least 4 (not given, it is hidden_size / num_attention_heads)");
  }
  return rotary_dim;
}

double read_theta(const JsonNode& holder, const char* key, double otherwise) {
  const double theta = holder.find_positive(key).value_or(otherwise);
  if (theta <= 1.0) holder.reject(key, "a number above 1");
  return theta;
}

// `scaling`: object with the fields that are not in `config`, if it exists.
RopeConfig read_scaled_rope(const JsonNode& config, const std::optional<JsonNode>& scaling,
                            const char* theta_key, int head_dim, int max_position_embeddings,
                            const RopeDefaults& defaults) {
  RopeConfig rope;
  rope.theta = read_theta(config, theta_key, defaults.theta);
  const bool partial_inside = scaling && scaling->has("partial_rotary_factor");
  rope.rotary_dim =
      read_rotary_dim(partial_inside ? *scaling : config, head_dim, defaults.partial_rotary_factor);
  rope.interleaved = config.boolean_or("rope_interleave", false);
  rope.type = scaling ? read_type(*scaling) : defaults.type;
  if (rope.type == RopeType::kProportional) {
    // Pairs are those of a complete rotation, and so are the frequencies of the first ones.
    rope.num_rotated_pairs = rope.rotary_dim / 2;
    rope.rotary_dim = head_dim;
  }
  if (!scaling) return rope;

  rope.theta = read_theta(*scaling, "rope_theta", rope.theta);
  const auto read_original = [&](int missing = 0) {
    rope.original_max_position_embeddings =
        read_original_length(config, *scaling, max_position_embeddings, missing);
  };
  switch (rope.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
      rope.factor = read_factor(*scaling);
      break;
    case RopeType::kProportional:
      if (scaling->has("factor")) rope.factor = read_factor(*scaling);
      break;
    case RopeType::kDynamic:
      rope.factor = read_factor(*scaling);
      rope.original_max_position_embeddings = max_position_embeddings;
      break;
    case RopeType::kLlama3:
      read_original();
      read_llama3(*scaling, rope);
      break;
    case RopeType::kYarn:
      read_original();
      read_yarn(*scaling, max_position_embeddings, rope);
      break;
    case RopeType::kLongRope:
      read_original(defaults.original_max_position_embeddings);
      read_longrope(*scaling, max_position_embeddings, rope);
      break;
  }
  return rope;
}

// Finds the object for one type of layer. A null would mean layers without rotation.
std::optional<JsonNode> find_for_layer_type(const JsonNode& ropes, const char* type) {
  if (ropes.mentions(type) && !ropes.has(type))
    fail(ErrorCode::kUnsupported, ropes.where(type),
         " null: attend does not support layers without rope here");
  return ropes.find(type);
}

}  // namespace

RopeConfig read_rope(const JsonNode& config, int head_dim, int max_position_embeddings,
                     const RopeDefaults& defaults) {
  const std::optional<JsonNode> scaling = find_scaling(config);
  if (scaling)
    for (const auto& [key, value] : scaling->value().items())
      if (value.is_object())
        fail(ErrorCode::kUnsupported, scaling->where(key),
             ": expected no objects: this architecture has one rope for all layers");
  return read_scaled_rope(config, scaling, "rope_theta", head_dim, max_position_embeddings, defaults);
}

LayerRopes read_layer_ropes(const JsonNode& config, const LayerHeadDims& head_dims,
                            int max_position_embeddings, const RopeDefaults& full,
                            const RopeDefaults& sliding) {
  std::optional<JsonNode> full_rope, sliding_rope;
  if (const auto ropes = config.find("rope_parameters"); ropes && ropes->object_size() > 0) {
    for (const auto& [key, value] : ropes->value().items())
      if (key != "full_attention" && key != "sliding_attention")
        fail(ErrorCode::kUnsupported, ropes->where(key),
             ": expected the layer types full_attention and sliding_attention");
    full_rope = find_for_layer_type(*ropes, "full_attention");
    sliding_rope = find_for_layer_type(*ropes, "sliding_attention");
  }
  if (const auto scaling = config.find("rope_scaling"); scaling && scaling->object_size() > 0)
    full_rope = scaling;
  return {.full = read_scaled_rope(config, full_rope, "rope_theta", head_dims.full, max_position_embeddings,
                                   full),
          .sliding = read_scaled_rope(config, sliding_rope, "rope_local_base_freq", head_dims.sliding,
                                      max_position_embeddings, sliding)};
}

}  // namespace attend
