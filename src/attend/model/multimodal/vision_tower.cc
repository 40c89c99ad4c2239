#include "attend/model/multimodal/vision_tower.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"

namespace attend {

using kernels::AttentionPlan;

// Activations and metadata of one encode().
struct VisionTower::Step {
  kernels::Residual& residual;
  const kernels::OpContext& context;
  const PatchLayout& layout;
  std::vector<int32_t> patch_indices = {};  // 0, 1, ...: rows of cos and sin
  Tensor cos = {}, sin = {};                // f32 [num_patches, head_dim / 2]
  std::vector<int32_t> cu_image = {};       // {0, num_patches}
  std::vector<int32_t> window_lengths = {}, image_length = {};
  std::optional<AttentionPlan> window_plan = {}, image_plan = {};
  Tensor qkv = {}, attended = {};  // [num_patches, 3 * hidden_size], [num_patches, hidden_size]
  Tensor gate_up = {},
         inner = {};  // [num_patches, 2 * intermediate_size], with a gate, and [.., intermediate_size]
  Tensor merged = {}, merged_inner = {};  // [num_tokens, hidden_size * patches per token]
};

namespace {

constexpr double kRopeTheta = 10000.0;

kernels::QueryBatch query_batch(const std::vector<int32_t>& cu_seqlens, const std::vector<int32_t>& lengths) {
  return {.cu_seqlen_q = cu_seqlens,
          .seqlen_kv = lengths,
          .max_seqlen_q = *std::ranges::max_element(lengths),
          .num_tokens = cu_seqlens.back()};
}

std::vector<int32_t> lengths_of(const std::vector<int32_t>& cu_seqlens) {
  std::vector<int32_t> lengths;
  for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i) lengths.push_back(cu_seqlens[i + 1] - cu_seqlens[i]);
  return lengths;
}

constexpr kernels::AttentionMask kUnmasked{.causal = false};

}  // namespace

VisionTower::VisionTower(const VisionSpec& spec, const VisionNames& names, const ModelPlacement& placement)
    : spec_(spec), names_(names), placement_(placement), layers_(static_cast<size_t>(spec.num_layers)) {
  require(placement.device.type == DeviceType::kCpu, "vision tower on ", placement.device,
          ": attend encodes images on CPUs only");
  for (Layer& layer : layers_) layer.attention_norm = layer.mlp_norm = make_norm();
  merger_.norm = make_norm();
  deepstack_.resize(spec.deepstack_layers.size());
  for (Merger& merger : deepstack_) merger.norm = make_norm();
}

kernels::Norm VisionTower::make_norm() const { return {.eps = spec_.norm_eps, .kind = spec_.norm_kind}; }

std::vector<WeightSlot> VisionTower::weight_slots(const std::string& prefix) {
  std::vector<WeightSlot> slots;
  const StoredForm form{.norm_biases = spec_.norm_kind == kernels::NormKind::kLayer};
  SlotWriter top(prefix, slots, form);
  const int64_t hidden = spec_.hidden_size, intermediate = spec_.intermediate_size,
                joined = hidden * spec_.processor.patches_per_token();
  const auto axes = spec_.processor.patch_axes();
  top.patches(names_.patch_embedding, hidden, {axes.begin(), axes.end()}, spec_.patch_bias, patch_embedding_);
  if (spec_.position_side > 0)
    top.matrix(names_.positions, int64_t{spec_.position_side} * spec_.position_side, hidden,
               WeightUse::kTable, positions_);
  for (size_t i = 0; i < layers_.size(); ++i) {
    SlotWriter writer(prefix + std::string(names_.layers) + "." + std::to_string(i) + ".", slots, form);
    Layer& layer = layers_[i];
    writer.norm(names_.attention_norm, hidden, layer.attention_norm);
    writer.linear({{names_.qkv_proj, 3 * hidden}}, hidden, /*bias=*/true, ShardAxis::kNone, layer.qkv);
    writer.linear({{names_.o_proj, hidden}}, hidden, /*bias=*/true, ShardAxis::kNone, layer.o);
    writer.norm(names_.mlp_norm, hidden, layer.mlp_norm);
    std::vector<SlotWriter::Part> gate_up;
    if (spec_.gated_mlp) gate_up.push_back({names_.gate_proj, intermediate});
    gate_up.push_back({names_.up_proj, intermediate});
    writer.linear(gate_up, hidden, /*bias=*/true, ShardAxis::kNone, layer.gate_up);
    writer.linear({{names_.down_proj, hidden}}, intermediate, /*bias=*/true, ShardAxis::kNone, layer.down);
  }
  const auto add_merger = [&](SlotWriter& writer, Merger& merger, std::string_view norm, int64_t norm_size,
                              std::string_view in, std::string_view out) {
    writer.norm(norm, norm_size, merger.norm);
    writer.linear({{in, joined}}, joined, /*bias=*/true, ShardAxis::kNone, merger.in);
    writer.linear({{out, spec_.out_size}}, joined, /*bias=*/true, ShardAxis::kNone, merger.out);
  };
  add_merger(top, merger_, names_.merger_norm, hidden, names_.merger_in, names_.merger_out);
  for (size_t i = 0; i < deepstack_.size(); ++i) {
    SlotWriter writer(prefix + std::string(names_.deepstack) + "." + std::to_string(i) + ".", slots, form);
    add_merger(writer, deepstack_[i], names_.deepstack_norm, joined, names_.deepstack_in,
               names_.deepstack_out);
  }
  return slots;
}

// The image's grid spans the whole table: its corners have the table's corner rows.
void VisionTower::add_positions(const PatchLayout& layout, const ImageItem& image,
                                const TensorView& x) const {
  const int side = spec_.position_side, merge = spec_.processor.merge_size;
  struct Tap {
    int low, high;
    float high_weight;
  };
  const auto tap = [&](int index, int size) -> Tap {
    const float at = static_cast<float>(index * (side - 1)) / static_cast<float>(std::max(size - 1, 1));
    const int low = static_cast<int>(at);
    return {low, std::min(low + 1, side - 1), at - static_cast<float>(low)};
  };
  visit_float_dtype(positions_.data.dtype, [&]<class T>(TypeTag<T>) {
    const auto table_row = [&](int row, int column) {
      return positions_.data[int64_t{row} * side + column].template as<const T>();
    };
    parallel_for_rows(layout.num_patches, 4 * x.shape[1], [&](int64_t i) {
      const auto patch = static_cast<size_t>(i);
      const Tap row = tap(layout.patch_rows[patch], image.rows * merge);
      const Tap column = tap(layout.patch_columns[patch], image.columns * merge);
      const T* const tables[] = {table_row(row.low, column.low), table_row(row.low, column.high),
                                 table_row(row.high, column.low), table_row(row.high, column.high)};
      const float weights[] = {(1.0f - row.high_weight) * (1.0f - column.high_weight),
                               (1.0f - row.high_weight) * column.high_weight,
                               row.high_weight * (1.0f - column.high_weight),
                               row.high_weight * column.high_weight};
      float* const to = x[i].as<float>();
      for (int64_t feature = 0; feature < x.shape[1]; ++feature) {
        float sum = 0.0f;
        for (size_t k = 0; k < 4; ++k) sum += weights[k] * static_cast<float>(tables[k][feature]);
        to[feature] += sum;
      }
    });
  });
}

Tensor VisionTower::encode(const ImageItem& image, Stream& stream) const {
  const PatchLayout layout = make_patch_layout(image, spec_);
  const int64_t num_patches = layout.num_patches, num_tokens = image.num_tokens(), hidden = spec_.hidden_size,
                head_dim = spec_.head_dim();
  const auto rows = [&](int64_t count, int64_t width) { return Tensor::empty({count, width}, DType::kF32); };
  const Tensor patches = make_patches(image, layout, spec_.processor);
  const int64_t joined = hidden * spec_.processor.patches_per_token();
  const int64_t widest = std::max({joined, int64_t{spec_.intermediate_size}, patches.shape(1)});
  const auto workspace_of = [&](WeightFormat format) {
    return kernels::linear_workspace_bytes(num_patches, widest, placement_.device, format);
  };
  // Some checkpoints have quantized towers.
  const size_t workspace_bytes =
      std::max(workspace_of(WeightFormat::kPlain), workspace_of(WeightFormat::kFp8));
  const Tensor workspace = Tensor::empty({static_cast<int64_t>(workspace_bytes)}, DType::kU8);
  const kernels::OpContext context{
      .stream = stream,
      .workspace = {static_cast<std::byte*>(workspace.view().data), workspace_bytes},
      .batch_invariant = placement_.batch_invariant,
      .rounds_x = placement_.rounds_x};
  const Tensor sum = rows(num_patches, hidden), scratch = rows(num_patches, hidden),
               gathered = rows(num_patches, hidden);
  kernels::Residual residual({.sum = sum, .scratch = scratch, .gathered = gathered});
  Step step{.residual = residual, .context = context, .layout = layout};
  step.patch_indices.resize(static_cast<size_t>(num_patches));
  std::iota(step.patch_indices.begin(), step.patch_indices.end(), 0);
  step.cos = rows(num_patches, head_dim / 2);
  step.sin = rows(num_patches, head_dim / 2);
  for (int64_t i = 0; i < num_patches; ++i)
    for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
      const int64_t j = pair % (head_dim / 4);
      const auto frequency = static_cast<float>(
          std::pow(kRopeTheta, -4.0 * static_cast<double>(j) / static_cast<double>(head_dim)));
      const auto& axis = pair < head_dim / 4 ? layout.patch_rows : layout.patch_columns;
      const float angle = static_cast<float>(axis[static_cast<size_t>(i)]) * frequency;
      step.cos.view()[i].as<float>()[pair] = static_cast<float>(std::cos(double{angle}));
      step.sin.view()[i].as<float>()[pair] = static_cast<float>(std::sin(double{angle}));
    }
  step.cu_image = {0, layout.num_patches};
  step.image_length = lengths_of(step.cu_image);
  step.window_lengths = lengths_of(layout.cu_windows);
  const auto plan = [&](const std::vector<int32_t>& cu_seqlens, const std::vector<int32_t>& lengths,
                        std::optional<AttentionPlan>& into) {
    into.emplace(kernels::AttentionPlanLimits{.max_reqs = static_cast<int>(lengths.size()),
                                              .max_tokens = layout.num_patches,
                                              .max_kv_tokens = num_patches,
                                              .num_q_heads = spec_.num_heads,
                                              .num_kv_heads = spec_.num_heads,
                                              .head_dim_v = static_cast<int>(head_dim),
                                              .split_rule = kernels::SplitRule::kNone,
                                              .kv_dtype = DType::kF32},
                 placement_.device);
    into->plan(query_batch(cu_seqlens, lengths), kUnmasked, stream);
  };
  plan(step.cu_image, step.image_length, step.image_plan);
  if (spec_.window_side > 0) plan(layout.cu_windows, step.window_lengths, step.window_plan);
  step.qkv = rows(num_patches, 3 * hidden);
  step.attended = rows(num_patches, hidden);
  if (spec_.gated_mlp) step.gate_up = rows(num_patches, 2 * int64_t{spec_.intermediate_size});
  step.inner = rows(num_patches, spec_.intermediate_size);
  step.merged = rows(num_tokens, joined);
  step.merged_inner = rows(num_tokens, joined);

  kernels::linear(patches, patch_embedding_.front(), residual.sum(), context);
  if (spec_.position_side > 0) add_positions(layout, image, residual.sum());
  const Tensor out = rows(num_tokens, spec_.row_size());
  const auto columns = [&](size_t part) {
    const int64_t begin = static_cast<int64_t>(part) * spec_.out_size;
    return out.view().slice(1, begin, begin + spec_.out_size);
  };
  size_t num_deepstack = 0;
  for (int i = 0; i < spec_.num_layers; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    const bool in_windows =
        spec_.window_side > 0 && std::ranges::find(spec_.full_layers, i) == spec_.full_layers.end();
    attend(layer, in_windows, step);
    run_mlp(layer, step);
    for (; num_deepstack < deepstack_.size() && spec_.deepstack_layers[num_deepstack] == i; ++num_deepstack)
      merge(deepstack_[num_deepstack], /*joins_first=*/true, columns(1 + num_deepstack), step);
  }
  merge(merger_, /*joins_first=*/false, columns(0), step);
  if (spec_.window_side == 0) return out;
  const Tensor ordered = rows(num_tokens, spec_.row_size());
  for (int64_t i = 0; i < num_tokens; ++i)
    std::copy_n(out.view()[i].as<float>(), spec_.row_size(),
                ordered.view()[layout.tokens[static_cast<size_t>(i)]].as<float>());
  return ordered;
}

void VisionTower::attend(const Layer& layer, bool in_windows, Step& step) const {
  const int64_t hidden = spec_.hidden_size, head_dim = spec_.head_dim();
  kernels::norm_linear(step.residual, {.norm = layer.attention_norm, .linear = layer.qkv, .out = step.qkv},
                       step.context);
  const auto heads = [&](int64_t part) {
    return step.qkv.view().slice(1, part * hidden, (part + 1) * hidden).split(1, head_dim);
  };
  const TensorView q = heads(0), k = heads(1), v = heads(2);
  kernels::norm_rope({.q = q, .k = k, .positions = step.patch_indices, .cos = step.cos, .sin = step.sin},
                     step.context.stream);
  // A page is one patch.
  const auto pages = [](const TensorView& rows) { return rows.split(0, 1); };
  const std::vector<int32_t>& cu_seqlens = in_windows ? step.layout.cu_windows : step.cu_image;
  kernels::attention({.q = q,
                      .out = step.attended.view().split(1, head_dim),
                      .lse = {},
                      .kv = {.k = pages(k),
                             .v = pages(v),
                             .index = {.kind = kernels::KvIndexKind::kContiguous,
                                       .page_size = 1,
                                       .indptr = cu_seqlens.data()}},
                      .batch = query_batch(cu_seqlens, in_windows ? step.window_lengths : step.image_length),
                      .attention_mask = kUnmasked,
                      .score = {.scale = 1.0f / std::sqrt(static_cast<float>(head_dim))}},
                     in_windows ? *step.window_plan : *step.image_plan, step.context.stream);
  kernels::linear_add(step.attended, layer.o.front(), step.residual, step.context);
}

void VisionTower::run_mlp(const Layer& layer, Step& step) const {
  if (spec_.gated_mlp)
    kernels::norm_gated_linear(
        step.residual,
        {.norm = layer.mlp_norm, .gate_up = layer.gate_up, .gate_up_out = step.gate_up, .out = step.inner},
        step.context);
  else
    kernels::norm_activated_linear(
        step.residual,
        {.norm = layer.mlp_norm, .linear = layer.gate_up, .activation = spec_.activation, .out = step.inner},
        step.context);
  kernels::linear_add(step.inner, layer.down.front(), step.residual, step.context);
}

void VisionTower::merge(const Merger& merger, bool joins_first, const TensorView& out, Step& step) const {
  const TensorView x = step.merged;
  const TensorView patches = x.reshape({step.layout.num_patches, spec_.hidden_size});
  kernels::read(step.residual, joins_first ? kernels::Norm() : merger.norm, patches, step.context);
  if (joins_first)
    kernels::layer_norm(x, merger.norm.weight, merger.norm.bias, merger.norm.eps, x, step.context.stream);
  kernels::linear(x, merger.in.front(), step.merged_inner, step.context);
  kernels::gelu(step.merged_inner, step.context.stream);
  kernels::linear(step.merged_inner, merger.out.front(), out, step.context);
}

}  // namespace attend
