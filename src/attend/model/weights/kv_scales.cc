#include "attend/model/weights/kv_scales.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/model/weights/check_tensors.h"

namespace attend {
namespace {

// Names by compressed-tensors, ModelOpt, old compressed-tensors and the first fp8 checkpoints, then for
// latent attention: the projection that computes the row, and SGLang's name for attention to the row.
constexpr std::array<std::string_view, 6> kKNames = {
    "k_scale",         "k_proj.k_scale", "k_proj.output_scale", "kv_scale", "kv_a_proj_with_mqa.k_scale",
    "attn_mqa.k_scale"};
constexpr std::array<std::string_view, 5> kVNames = {"v_scale", "v_proj.v_scale", "v_proj.output_scale",
                                                     "kv_a_proj_with_mqa.v_scale", "attn_mqa.v_scale"};

// Returns the scale under the first of these names that the files have.
std::optional<float> find_scale(const CheckpointTensors& files, const std::string& attention,
                                std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const std::string full = attention + std::string(name);
    if (!files.contains(full)) continue;
    const Tensor tensor = files.tensor(full);
    if (tensor.view().num_elements() != 1)
      fail(ErrorCode::kCorruptFile, files.where(full), ": ", tensor.view().num_elements(),
           " elements: expected one");
    std::optional<float> scale;
    visit_float_dtype(tensor.dtype(),
                      [&]<class T>(TypeTag<T>) { scale = static_cast<float>(*tensor.as<const T>()); });
    if (!scale || !std::isfinite(*scale))
      fail(ErrorCode::kCorruptFile, files.where(full), ": expected a finite number");
    return scale;
  }
  return std::nullopt;
}

// "model.layers.3.self_attn."
std::string attention_prefix(const DecoderNames& names, int layer) {
  const std::string_view module = names.k_proj.substr(0, names.k_proj.rfind('.') + 1);
  return std::string(names.layers) + "." + std::to_string(layer) + "." + std::string(module);
}

}  // namespace

std::vector<KvScales> find_kv_scales(const CheckpointTensors& files, const ModelSpec& spec,
                                     const DecoderNames& names, WeightPrefixes prefixes) {
  const std::string directory = files.path().string();
  const auto above_zero = [](std::optional<float> scale) { return scale && *scale > 0.0f ? *scale : 1.0f; };
  std::vector<KvScales> scales;
  bool any = false;
  int num_ignored = 0;
  for (int layer = 0; layer < spec.num_layers(); ++layer) {
    if (!has_kv(spec.layers[static_cast<size_t>(layer)].mixer)) continue;
    const std::string attention = stored_name(attention_prefix(names, layer), prefixes);
    const std::optional<float> k = find_scale(files, attention, kKNames),
                               v = find_scale(files, attention, kVNames);
    if (v && !k)
      fail(ErrorCode::kCorruptFile, directory, ": weights: ", attention,
           "v_scale without a k_scale: expected both, or k_scale for both");
    KvScales each{.k = above_zero(k), .v = above_zero(v ? v : k)};
    // V is a part of K's row.
    if (std::holds_alternative<MlaSpec>(spec.layers[static_cast<size_t>(layer)].mixer) && each.v != each.k) {
      each.v = each.k;
      ++num_ignored;
    }
    scales.push_back(each);
    any |= k.has_value();
  }
  if (num_ignored > 0)
    log_info(directory, ": v_scale of ", num_ignored,
             " layers is ignored: in latent attention V is a part of the row, which k_scale scales");
  return any ? scales : std::vector<KvScales>{};
}

bool is_kv_scale(std::string_view name) {
  const auto ends = [&](std::string_view ending) { return name.ends_with("." + std::string(ending)); };
  return std::ranges::any_of(kKNames, ends) || std::ranges::any_of(kVNames, ends);
}

}  // namespace attend
