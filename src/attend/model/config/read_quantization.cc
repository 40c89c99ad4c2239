#include <algorithm>
#include <array>
#include <ranges>

#include "attend/base/error.h"
#include "attend/checkpoint/json.h"
#include "attend/model/config/quantization.h"

namespace attend {
namespace {

// Group sizes are multiples of this number, since kernels load that number of inputs of one group at once.
constexpr int kGroupUnit = 32;
constexpr int kMaxGroup = 1 << 30;
constexpr int kInt4Bits = 4, kInt8Bits = 8;

void require_bits(const JsonNode& json, const char* key, int accepted) {
  const int bits = json.integer(key, 1, 64);
  if (bits != accepted)
    fail(ErrorCode::kUnsupported, json.where(key), " ", bits, ": attend supports ", accepted);
}

// Reads the number of bits of integer formats: 4 or 8.
int read_bits(const JsonNode& json, const char* key) {
  const int bits = json.integer(key, 1, 64);
  if (bits != kInt4Bits && bits != kInt8Bits)
    fail(ErrorCode::kUnsupported, json.where(key), " ", bits, ": attend supports ", kInt4Bits, ", ",
         kInt8Bits);
  return bits;
}

// Returns 0, one group of all inputs, if the field is -1 or absent.
int64_t read_group(const JsonNode& json, const char* key) {
  const int group = json.find_integer(key, -1, kMaxGroup).value_or(-1);
  if (group == -1) return 0;
  if (group == 0) json.reject(key, "-1 for all inputs, or a positive number");
  if (group % kGroupUnit != 0)
    fail(ErrorCode::kUnsupported, json.where(key), " ", group, ": attend supports multiples of ", kGroupUnit,
         ", or -1 for all inputs");
  return group;
}

// Reads the block size of fp8 weights: [outputs, inputs].
void read_blocks(const JsonNode& json, const char* key, Quantization& to) {
  const auto blocks = json.find(key);
  if (!blocks) return;
  if (!blocks->value().is_array() || blocks->array_size() != 2)
    blocks->reject("an array of two sizes: outputs and inputs");
  to.group_outs = blocks->at(size_t{0}).integer(1, kMaxGroup);
  to.group_ins = blocks->at(size_t{1}).integer(1, kMaxGroup);
  if (to.group_ins % kGroupUnit != 0)
    fail(ErrorCode::kUnsupported, json.where(key), ": blocks of ", to.group_ins,
         " inputs: attend supports multiples of ", kGroupUnit);
}

Quantization read_fp8(const JsonNode& json) {
  Quantization result{.storage = WeightStorage::kFp8};
  if (const auto format = json.find_string("fmt"); format && *format != "e4m3" && *format != "float8_e4m3fn")
    fail(ErrorCode::kUnsupported, json.where("fmt"), " \"", *format,
         "\": attend supports e4m3, float8_e4m3fn");
  read_blocks(json, "weight_block_size", result);
  result.rounds_x = json.find("activation_scheme").has_value();
  return result;
}

bool same_kind(const Quantization& one, const Quantization& other) {
  return one.storage == other.storage && one.group_ins == other.group_ins &&
         one.group_outs == other.group_outs && one.reorders == other.reorders &&
         one.has_zeros == other.has_zeros;
}

// Adds the kind of `layers`. Every weight of the files is compared with every kind, so their number is
// limited.
void add_kind(const JsonNode& layers, const Quantization& kind, Quantization& to) {
  constexpr size_t kMaxKinds = 64;
  for (size_t i = 0; i < num_kinds(to); ++i)
    if (same_kind(weight_kind(to, i), kind)) return;
  if (num_kinds(to) == kMaxKinds)
    fail(ErrorCode::kUnsupported, layers.where(), ": differs from ", kMaxKinds,
         " kinds of layers before it: attend supports up to ", kMaxKinds, " in one model");
  to.others.push_back(kind);
}

// Adds layers of GPTQ's layout with their own bits or group size. Layers of at least 16 bits are not
// quantized.
void add_gptq_layer(const JsonNode& layer, Quantization& to) {
  constexpr int kPlainBits = 16;
  const auto bits = layer.find_integer("bits", 1, 64);
  if (bits && *bits >= kPlainBits) return;
  Quantization kind = to;
  kind.others.clear();
  if (bits)
    kind.storage = read_bits(layer, "bits") == kInt8Bits ? WeightStorage::kGptqInt8 : WeightStorage::kGptq;
  if (layer.has("group_size")) kind.group_ins = read_group(layer, "group_size");
  kind.reorders = layer.boolean_or("desc_act", kind.reorders);
  add_kind(layer, kind, to);
}

Quantization read_gptq(const JsonNode& json) {
  const int bits = read_bits(json, "bits");
  // GPTQModel writes both names.
  std::string format = "gptq";
  for (const char* const key : {"format", "checkpoint_format"}) {
    format = json.find_string(key).value_or(format);
    if (format != "gptq" && format != "gptq_v2")
      fail(ErrorCode::kUnsupported, json.where(key), " \"", format, "\": attend supports gptq, gptq_v2");
  }
  Quantization result{.storage = bits == kInt8Bits ? WeightStorage::kGptqInt8 : WeightStorage::kGptq,
                      .group_ins = read_group(json, "group_size"),
                      .reorders = json.boolean_or("desc_act", false),
                      .zeros_less_one = format == "gptq"};
  if (const auto overrides = json.find("dynamic"); overrides && overrides->object_size() > 0)
    for (const auto& [layers, value] : overrides->value().items())
      if (!layers.starts_with("-:")) add_gptq_layer(overrides->at(layers), result);
  return result;
}

Quantization read_awq(const JsonNode& json) {
  require_bits(json, "bits", kInt4Bits);
  if (const std::string version = json.find_string("version").value_or("gemm");
      version != "gemm" && version != "GEMM")
    fail(ErrorCode::kUnsupported, json.where("version"), " \"", version, "\": attend supports gemm");
  return {.storage = WeightStorage::kAwq, .group_ins = read_group(json, "group_size")};
}

// AutoRound packs weights as the first GPTQ format or as AWQ.
Quantization read_auto_round(const JsonNode& json) {
  const char* const key = json.has("packing_format") ? "packing_format" : "backend";
  const std::string packing = json.find_string(key).value_or("?");
  const bool gptq = packing.starts_with("auto_round:auto_gptq") || packing.starts_with("auto_round:gptq:");
  if (!gptq && !packing.starts_with("auto_round:auto_awq"))
    fail(ErrorCode::kUnsupported, json.where(key), " \"", packing,
         "\": attend supports auto_round:auto_awq, auto_round:auto_gptq");
  if (!gptq) require_bits(json, "bits", kInt4Bits);
  const bool int8 = read_bits(json, "bits") == kInt8Bits;
  Quantization result{.storage = !gptq  ? WeightStorage::kAwq
                                 : int8 ? WeightStorage::kGptqInt8
                                        : WeightStorage::kGptq,
                      .group_ins = read_group(json, "group_size"),
                      .zeros_less_one = gptq};
  if (const auto layers = json.find("extra_config"); layers && gptq)
    for (const auto& [name, value] : layers->value().items()) add_gptq_layer(layers->at(name), result);
  return result;
}

// Returns whether compressed-tensors groups inputs by act-order. With "weight", groups are contiguous.
bool reorders_groups(const JsonNode& weights) {
  const auto order = weights.find("actorder");
  if (!order) return false;
  if (order->value().is_boolean()) return order->boolean();
  return order->string() == "group" || order->string() == "dynamic";
}

// Reads the weight format of one compressed-tensors group of layers.
Quantization read_scheme(const JsonNode& weights, std::string_view format) {
  const std::string type = weights.find_string("type").value_or("int");
  if (format == "mxfp4-pack-quantized") return {.storage = WeightStorage::kPackedMxFp4, .group_ins = 32};
  if (format == "pack-quantized") {
    if (type != "int")
      fail(ErrorCode::kUnsupported, weights.where("type"), " \"", type,
           "\": attend supports int with this format");
    const int bits = read_bits(weights, "num_bits");
    return {.storage = bits == kInt8Bits ? WeightStorage::kPackedInt8 : WeightStorage::kPackedInt4,
            .group_ins = read_group(weights, "group_size"),
            .reorders = reorders_groups(weights),
            .has_zeros = !weights.boolean_or("symmetric", true)};
  }
  if (format == "int-quantized") {
    if (type != "int")
      fail(ErrorCode::kUnsupported, weights.where("type"), " \"", type,
           "\": attend supports int with this format");
    require_bits(weights, "num_bits", kInt8Bits);
    return {.storage = WeightStorage::kInt8,
            .group_ins = read_group(weights, "group_size"),
            .has_zeros = !weights.boolean_or("symmetric", true)};
  }
  if (type != "float")
    fail(ErrorCode::kUnsupported, weights.where("type"), " \"", type,
         "\": attend supports float with format ", format);
  require_bits(weights, "num_bits", 8);
  Quantization result{.storage = WeightStorage::kFp8};
  read_blocks(weights, "block_structure", result);
  return result;
}

// Rejects checkpoint features other than scales that would change results if they were ignored.
void reject_transforms(const JsonNode& json) {
  if (const auto transform = json.find("transform_config")) {
    const auto groups = transform->find("config_groups");
    if (groups && groups->object_size() > 0)
      fail(ErrorCode::kUnsupported, groups->where(), ": attend does not support transforms around layers");
  }
  if (const auto sparsity = json.find("sparsity_config"))
    if (const auto format = sparsity->find_string("format"); format && *format != "dense")
      fail(ErrorCode::kUnsupported, sparsity->where("format"), " \"", *format, "\": attend supports dense");
}

void require_format(const JsonNode& json, const std::string& format) {
  constexpr std::array kFormats = {"float-quantized", "int-quantized", "mxfp4-pack-quantized",
                                   "naive-quantized", "pack-quantized"};
  if (std::ranges::find(kFormats, format) != kFormats.end()) return;
  std::string names;
  for (const std::string_view known : kFormats) names += (names.empty() ? "" : ", ") + std::string(known);
  fail(ErrorCode::kUnsupported, json.where("format"), " \"", format, "\": attend supports ", names);
}

Quantization read_compressed_tensors(const JsonNode& json) {
  reject_transforms(json);
  const std::string format = json.find_string("format").value_or("?");
  const JsonNode groups = json.at("config_groups");
  if (groups.object_size() == 0) groups.reject("at least one group of layers");
  std::optional<Quantization> result;
  bool rounds_x = true;
  for (const auto& [name, value] : groups.value().items()) {
    const JsonNode group = groups.at(name);
    // Groups for attention have no weights.
    if (!group.has("weights") && groups.object_size() > 1) continue;
    const auto format_override = group.find_string("format");
    require_format(format_override ? group : json, format_override.value_or(format));
    const Quantization kind = read_scheme(group.at("weights"), format_override.value_or(format));
    if (kind.storage == WeightStorage::kFp8) rounds_x = rounds_x && group.has("input_activations");
    if (result)
      add_kind(group, kind, *result);
    else
      result = kind;
  }
  if (!result) groups.reject("a group of layers with weights");
  result->rounds_x =
      rounds_x && std::ranges::any_of(std::views::iota(size_t{0}, num_kinds(*result)), [&](size_t i) {
        return weight_kind(*result, i).storage == WeightStorage::kFp8;
      });
  return *result;
}

Quantization read_modelopt(const JsonNode& json) {
  const std::string algorithm = json.find_string("quant_algo").value_or("?");
  if (algorithm != "FP8")
    fail(ErrorCode::kUnsupported, json.where("quant_algo"), " \"", algorithm, "\": attend supports FP8");
  return {.storage = WeightStorage::kFp8, .rounds_x = true};
}

struct Method {
  std::string_view name;
  Quantization (*read)(const JsonNode& json);
};
constexpr std::array<Method, 10> kMethods{
    {{"auto-round", read_auto_round},
     {"awq", read_awq},
     {"compressed-tensors", read_compressed_tensors},
     {"fbgemm_fp8",
      [](const JsonNode&) { return Quantization{.storage = WeightStorage::kFp8, .rounds_x = true}; }},
     {"fp8", read_fp8},
     {"gguf", [](const JsonNode&) { return Quantization{.storage = WeightStorage::kBlocks}; }},
     {"gptq", read_gptq},
     {"intel/auto-round", read_auto_round},
     {"modelopt", read_modelopt},
     {"mxfp4",
      [](const JsonNode&) { return Quantization{.storage = WeightStorage::kMxFp4, .group_ins = 32}; }}}};

// Stores the method in every kind, for messages about single weights.
Quantization named(Quantization result, const std::string& method) {
  result.method = method;
  for (Quantization& other : result.others) other.method = method;
  return result;
}

}  // namespace

Quantization read_modelopt_quantization(const JsonNode& json) {
  return named(read_modelopt(json), "modelopt");
}

Quantization read_quantization(const JsonNode& json) {
  json.object_size();
  const std::string method = json.find_string("quant_method").value_or("?");
  std::string names;
  for (const Method& known : kMethods) {
    if (known.name == method) return named(known.read(json), method);
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  fail(ErrorCode::kUnsupported, json.where("quant_method"), " \"", method, "\": attend supports ", names);
}

}  // namespace attend
