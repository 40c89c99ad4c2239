#include "attend/model/read_rope.h"

#include <array>
#include <utility>

#include "attend/base/error.h"

namespace attend {
namespace {

constexpr int kMaxPositions = 1 << 30;
// Far beyond what any model stretches by; below what would leave no frequency.
constexpr double kMaxFactor = 1 << 20;

constexpr std::array<std::pair<std::string_view, RopeType>, 5> kRopeTypes{{
    {"default", RopeType::kDefault},
    {"linear", RopeType::kLinear},
    {"dynamic", RopeType::kDynamic},
    {"llama3", RopeType::kLlama3},
    {"yarn", RopeType::kYarn},
}};

// The object that says how positions are scaled: rope_scaling, or rope_parameters as transformers 5 writes.
std::optional<JsonNode> scaling_of(const JsonNode& config) {
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
    if (name == type_name) return type;
    known += (known.empty() ? "" : ", ") + std::string(type_name);
  }
  fail(ErrorCode::kUnsupported, scaling.where(key), " \"", name, "\": attend has ", known);
}

// How often the scaled positions fit into the original ones. Below 1 there is nothing to scale, and the
// formulas leave their range.
double read_factor(const JsonNode& scaling) {
  const double factor = scaling.positive("factor");
  if (factor < 1.0 || factor > kMaxFactor) scaling.refuse("factor", "a number from 1 to 1048576");
  return factor;
}

// transformers lets the field beside rope_scaling win over the one inside.
int read_original_length(const JsonNode& config, const JsonNode& scaling, int max_position_embeddings) {
  constexpr const char* kKey = "original_max_position_embeddings";
  const JsonNode& holder = config.has(kKey) ? config : scaling;
  const int length = holder.find_integer(kKey, 1, kMaxPositions).value_or(max_position_embeddings);
  if (length > max_position_embeddings)
    holder.refuse(kKey, "at most max_position_embeddings " + std::to_string(max_position_embeddings));
  return length;
}

void read_llama3(const JsonNode& scaling, RopeConfig& rope) {
  rope.factor = read_factor(scaling);
  rope.low_freq_factor = scaling.positive("low_freq_factor");
  rope.high_freq_factor = scaling.positive("high_freq_factor");
  if (rope.high_freq_factor <= rope.low_freq_factor)
    scaling.refuse("high_freq_factor", "more than low_freq_factor");
}

void read_yarn(const JsonNode& scaling, int max_position_embeddings, RopeConfig& rope) {
  // A factor that is null is what the lengths say.
  const bool by_lengths = scaling.mentions("factor") && !scaling.has("factor") &&
                          rope.original_max_position_embeddings < max_position_embeddings;
  rope.factor = by_lengths ? 1.0 * max_position_embeddings / rope.original_max_position_embeddings
                           : read_factor(scaling);
  rope.beta_fast = scaling.find_positive("beta_fast").value_or(rope.beta_fast);
  rope.beta_slow = scaling.find_positive("beta_slow").value_or(rope.beta_slow);
  if (rope.beta_fast <= rope.beta_slow)
    fail(ErrorCode::kCorruptFile, scaling.where("beta_fast"), " ", rope.beta_fast,
         ": expected more than beta_slow ", rope.beta_slow);
  rope.attention_factor = scaling.find_positive("attention_factor").value_or(rope.attention_factor);
  rope.mscale = scaling.find_positive("mscale").value_or(rope.mscale);
  rope.mscale_all_dim = scaling.find_positive("mscale_all_dim").value_or(rope.mscale_all_dim);
  rope.truncate = scaling.find_boolean("truncate").value_or(rope.truncate);
}

int read_rotary_dim(const JsonNode& holder, int head_dim) {
  const double share = holder.find_positive("partial_rotary_factor").value_or(1.0);
  const int rotary_dim = share <= 1.0 ? static_cast<int>(head_dim * share) : 0;
  // The dynamic type divides by rotary_dim - 2.
  if (rotary_dim < 4 || rotary_dim % 2 != 0) {
    if (holder.has("partial_rotary_factor"))
      holder.refuse("partial_rotary_factor", "a share of head_dim " + std::to_string(head_dim) +
                                                 " that is an even number from 4 to head_dim");
    holder.refuse("head_dim", "an even head_dim of at least 4, is " + std::to_string(head_dim));
  }
  return rotary_dim;
}

double read_theta(const JsonNode& holder, const char* key, double otherwise) {
  const double theta = holder.find_positive(key).value_or(otherwise);
  if (theta <= 1.0) holder.refuse(key, "a number above 1");
  return theta;
}

}  // namespace

RopeConfig read_rope(const JsonNode& config, int head_dim, int max_position_embeddings) {
  RopeConfig rope;
  rope.theta = read_theta(config, "rope_theta", rope.theta);
  const std::optional<JsonNode> scaling = scaling_of(config);
  const bool partial_inside = scaling && scaling->has("partial_rotary_factor");
  rope.rotary_dim = read_rotary_dim(partial_inside ? *scaling : config, head_dim);
  if (!scaling) return rope;

  for (const auto& [key, value] : scaling->value().items())
    if (value.is_object())
      fail(ErrorCode::kUnsupported, scaling->where(key), ": attend has one rope for all layers");
  rope.type = read_type(*scaling);
  rope.theta = read_theta(*scaling, "rope_theta", rope.theta);
  switch (rope.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
      rope.factor = read_factor(*scaling);
      break;
    case RopeType::kDynamic:
      rope.factor = read_factor(*scaling);
      rope.original_max_position_embeddings = max_position_embeddings;
      break;
    case RopeType::kLlama3:
      rope.original_max_position_embeddings = read_original_length(config, *scaling, max_position_embeddings);
      read_llama3(*scaling, rope);
      break;
    case RopeType::kYarn:
      rope.original_max_position_embeddings = read_original_length(config, *scaling, max_position_embeddings);
      read_yarn(*scaling, max_position_embeddings, rope);
      break;
  }
  return rope;
}

}  // namespace attend
