#include "attend/model/multimodal/vision_tower.h"

#include <utility>

#include "attend/base/error.h"
#include "attend/model/multimodal/vision_encoding.h"
#include "attend/tensor/cuda.h"

namespace attend {

using kernels::Norm;
using kernels::NormKind;

VisionTower::VisionTower(const VisionSpec& spec, const VisionNames& names, const ModelPlacement& placement)
    : spec_(spec), names_(names), placement_(placement) {
  const Norm norm{.eps = spec.norm_eps, .kind = spec.norm_kind};
  weights_.first_norm = norm;
  weights_.layers.resize(static_cast<size_t>(spec.num_layers));
  for (VisionLayer& layer : weights_.layers)
    layer.attention_norm = layer.mlp_norm = layer.attention_post_norm = layer.mlp_post_norm = norm;
  weights_.merger.norm = norm;
  if (spec.merge == VisionMerge::kScaledMean) {
    weights_.merger.norm = {};
  } else if (spec.merge != VisionMerge::kMean) {
    weights_.merger.norm.eps = spec.merge_eps;
  }
  weights_.deepstack.resize(spec.deepstack_layers.size());
  for (VisionMerger& merger : weights_.deepstack) merger.norm = weights_.merger.norm;
}

void VisionTower::adopt(LoadedWeights weights) {
  loaded_ = std::move(weights);
  const auto vector = [&](int size, float value) {
    const Tensor host = Tensor::from<float>(std::vector<float>(static_cast<size_t>(size), value), {size});
    return placement_.device.type == DeviceType::kCpu ? host : cuda::copy_to(host, placement_.device);
  };
  zeros_ = vector(spec_.head_dim(), 0.0f);
  if (spec_.merge != VisionMerge::kScaledMean) return;
  ones_ = vector(spec_.hidden_size, 1.0f);
  weights_.merger.token_norm = ones_;
}

StoredForm VisionTower::stored_form() const { return {.norm_biases = spec_.norm_kind == NormKind::kLayer}; }

std::vector<WeightSlot> VisionTower::weight_slots(const VisionPrefix& prefix) {
  std::vector<WeightSlot> slots;
  SlotWriter top(std::string(prefix.tower), slots, stored_form());
  const int64_t hidden = spec_.hidden_size, intermediate = spec_.intermediate_size;
  top.patches(names_.patch_embedding, hidden, spec_.processor.patch_axes(), spec_.patch_bias,
              weights_.patch_embedding);
  if (spec_.position_side > 0)
    top.matrix(names_.positions, int64_t{spec_.position_side} * spec_.position_side, hidden,
               WeightUse::kTable, weights_.positions);
  if (spec_.axis_positions > 0)
    top.tables(names_.positions, 2, spec_.axis_positions, hidden, weights_.positions);
  if (spec_.first_norm) top.norm(names_.first_norm, hidden, weights_.first_norm);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    SlotWriter writer(std::string(prefix.tower) + std::string(names_.layers) + "." + std::to_string(i) + ".",
                      slots, stored_form());
    VisionLayer& layer = weights_.layers[i];
    const auto linear = [&](std::vector<SlotWriter::Part> parts, int64_t in_features,
                            std::vector<Linear>& into, std::vector<VisionClip>& clamps) {
      if (spec_.clamps) {
        clamps.resize(parts.size());
        for (size_t part = 0; part < parts.size(); ++part) {
          const std::string name(parts[part].name);
          writer.scalar(name + ".input_min", clamps[part].in_min);
          writer.scalar(name + ".input_max", clamps[part].in_max);
          writer.scalar(name + ".output_min", clamps[part].out_min);
          writer.scalar(name + ".output_max", clamps[part].out_max);
        }
      }
      std::vector<std::string> names;
      for (const SlotWriter::Part& part : parts)
        names.push_back(std::string(part.name) + std::string(names_.clipped));
      for (size_t part = 0; part < parts.size(); ++part) parts[part].name = names[part];
      writer.linear(parts, in_features, spec_.biases, ShardAxis::kNone, into);
    };
    writer.norm(names_.attention_norm, hidden, layer.attention_norm);
    linear({{names_.q_proj, hidden}, {names_.k_proj, hidden}, {names_.v_proj, hidden}}, hidden, layer.qkv,
           layer.qkv_clamps);
    linear({{names_.o_proj, hidden}}, hidden, layer.o, layer.o_clamps);
    if (spec_.head_norms) {
      writer.norm(names_.q_norm, spec_.head_dim(), layer.q_norm);
      writer.norm(names_.k_norm, spec_.head_dim(), layer.k_norm);
    }
    if (spec_.post_norms) {
      writer.norm(names_.attention_post_norm, hidden, layer.attention_post_norm);
      writer.norm(names_.mlp_post_norm, hidden, layer.mlp_post_norm);
    }
    writer.norm(names_.mlp_norm, hidden, layer.mlp_norm);
    std::vector<SlotWriter::Part> gate_up;
    if (spec_.gated_mlp) gate_up.push_back({names_.gate_proj, intermediate});
    gate_up.push_back({names_.up_proj, intermediate});
    linear(gate_up, hidden, layer.gate_up, layer.gate_up_clamps);
    linear({{names_.down_proj, hidden}}, intermediate, layer.down, layer.down_clamps);
  }
  add_merger(prefix, slots);
  add_deepstack(prefix, slots);
  return slots;
}

void VisionTower::add_merger(const VisionPrefix& prefix, std::vector<WeightSlot>& slots) {
  VisionMerger& merger = weights_.merger;
  const int64_t hidden = spec_.hidden_size, joined = hidden * spec_.processor.patches_per_token();
  if (spec_.merge == VisionMerge::kMean) {
    SlotWriter(std::string(prefix.tower), slots, stored_form()).norm(names_.merger_norm, hidden, merger.norm);
    SlotWriter writer(std::string(prefix.merger), slots, {.zero_centered_norms = true});
    writer.norm(names_.merger_token_norm, hidden, merger.token_norm);
    writer.transposed(names_.merger_out, spec_.out_size, hidden, merger.out);
    return;
  }
  SlotWriter writer(std::string(prefix.merger), slots, stored_form());
  if (spec_.merge == VisionMerge::kScaledMean) {
    SlotWriter tower(std::string(prefix.tower), slots, stored_form());
    if (spec_.standardizes) {
      tower.vector_in_f32(names_.std_bias, hidden, merger.std_bias);
      tower.vector_in_f32(names_.std_scale, hidden, merger.std_scale);
    }
    writer.linear({{names_.merger_out, spec_.out_size}}, hidden, /*bias=*/false, ShardAxis::kNone,
                  merger.out);
    return;
  }
  const auto linear = [&](std::string_view name, int64_t out_features, int64_t in_features,
                          std::vector<Linear>& into, bool bias) {
    writer.linear({{name, out_features}}, in_features, bias, ShardAxis::kNone, into);
  };
  writer.norm(names_.merger_norm, hidden, merger.norm);
  const bool joins_channels = spec_.merge == VisionMerge::kChannelJoin;
  if (joins_channels) linear(names_.merger_join, hidden, joined, merger.join, /*bias=*/false);
  const int64_t width = joins_channels ? spec_.out_size : joined;
  linear(names_.merger_in, width, joins_channels ? hidden : joined, merger.in, spec_.merge_biases);
  linear(names_.merger_out, spec_.out_size, width, merger.out, spec_.merge_biases);
}

void VisionTower::add_deepstack(const VisionPrefix& prefix, std::vector<WeightSlot>& slots) {
  const int64_t joined = int64_t{spec_.hidden_size} * spec_.processor.patches_per_token();
  for (size_t i = 0; i < weights_.deepstack.size(); ++i) {
    SlotWriter writer(
        std::string(prefix.merger) + std::string(names_.deepstack) + "." + std::to_string(i) + ".", slots,
        stored_form());
    VisionMerger& merger = weights_.deepstack[i];
    writer.norm(names_.deepstack_norm, joined, merger.norm);
    writer.linear({{names_.deepstack_in, joined}}, joined, /*bias=*/true, ShardAxis::kNone, merger.in);
    writer.linear({{names_.deepstack_out, spec_.out_size}}, joined, /*bias=*/true, ShardAxis::kNone,
                  merger.out);
  }
}

Tensor VisionTower::encode(std::shared_ptr<const ImageItem> image, Stream& stream) const {
  VisionEncoding encoding(*this, std::move(image), stream);
  while (encoding.advance(stream)) {
  }
  return encoding.rows();
}

}  // namespace attend
