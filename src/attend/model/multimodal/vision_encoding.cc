#include "attend/model/multimodal/vision_encoding.h"

#include <algorithm>
#include <cmath>

#include "attend/base/error.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/kernels/vision/vision.h"

namespace attend {

using kernels::OpContext;

namespace {

constexpr kernels::AttentionMask kUnmasked{.causal = false};

}  // namespace

bool VisionEncoding::advance(Stream& stream) {
  if (layer_ == spec_.num_layers) return false;
  const OpContext context{
      .stream = stream,
      .workspace = {static_cast<std::byte*>(workspace_.view().data), workspace_.view().num_bytes()},
      .batch_invariant = tower_.placement().batch_invariant,
      .rounds_x = tower_.placement().rounds_x};
  Range& range = ranges_[range_];
  if (layer_ < 0) {
    embed(range, context);
  } else {
    const VisionLayer& layer = weights_.layers[static_cast<size_t>(layer_)];
    if (phase_ == 0) {
      project(layer, range, context);
    } else {
      const bool in_windows = has_windows(layer_);
      attend(in_windows, range, stream);
      add(attended_.view().slice(0, 0, range.num_rows()), layer.o, layer.o_clamps, layer.attention_post_norm,
          range, context);
      run_mlp(layer, range, context);
      end_layer(layer_, range, context);
    }
  }
  if (++range_ < ranges_.size()) return true;
  range_ = 0;
  const bool ends_layer = layer_ < 0 || phase_ == 1;
  phase_ = ends_layer ? 0 : 1;
  layer_ += ends_layer ? 1 : 0;
  if (layer_ < spec_.num_layers) return true;
  if (spec_.window_side > 0) kernels::gather_rows(out_, places_, ordered_, stream);
  return false;
}

bool VisionEncoding::has_windows(int layer) const {
  return spec_.window_side > 0 && std::ranges::find(spec_.full_layers, layer) == spec_.full_layers.end();
}

double VisionEncoding::part_flops() const {
  if (layer_ == spec_.num_layers) return 0.0;
  const Range& range = ranges_[range_];
  const double rows = range.num_rows(), hidden = spec_.hidden_size;
  if (layer_ < 0) return 2.0 * rows * static_cast<double>(patches_.shape(1)) * hidden;
  if (phase_ == 0) return 2.0 * rows * 3.0 * hidden * hidden;
  const double keys = has_windows(layer_) ? range.windows.max_seqlen_kv : layout_.num_patches;
  const double mlp = (spec_.gated_mlp ? 3.0 : 2.0) * spec_.intermediate_size;
  return 2.0 * rows * hidden * (2.0 * keys + hidden + mlp);
}

Tensor VisionEncoding::rows() const {
  ensure(layer_ == spec_.num_layers, "rows of an image after layer ", layer_, " of ", spec_.num_layers);
  return spec_.window_side > 0 ? ordered_ : out_;
}

void VisionEncoding::embed(Range& range, const OpContext& context) {
  const auto first = static_cast<size_t>(range.begin), count = static_cast<size_t>(range.num_rows());
  const TensorView sum = range.residual.sum(), patches = patches_.view().slice(0, 0, range.num_rows());
  kernels::ImagePatchesArgs args = patch_args(spec_.processor);
  args.pixels = pixels_;
  args.rows = patch_rows_.subspan(first, count);
  args.columns = patch_columns_.subspan(first, count);
  args.out = patches;
  kernels::image_patches(args, context.stream);
  kernels::linear(patches, weights_.patch_embedding.front(), sum, context);
  if (taps_per_row_ > 0) {
    const auto taps_per_row = static_cast<size_t>(taps_per_row_);
    const View<const kernels::TableTap> taps{static_cast<const kernels::TableTap*>(taps_.view().data),
                                             static_cast<size_t>(num_patches_) * taps_per_row};
    const TensorView table = weights_.positions.data;
    kernels::add_table_rows(
        {.taps = taps.subspan(first * taps_per_row, count * taps_per_row),
         .taps_per_row = taps_per_row_,
         .table = table.reshape({table.num_elements() / spec_.hidden_size, int64_t{spec_.hidden_size}}),
         .out = sum},
        context.stream);
  }
  if (!spec_.first_norm) return;
  kernels::rms_norm(sum, weights_.first_norm.weight, weights_.first_norm.eps, sum, context.stream);
}

void VisionEncoding::project_clipped(const TensorView& x, const std::vector<Linear>& parts,
                                     const std::vector<VisionClip>& clamps, const TensorView& out,
                                     const OpContext& context) {
  const bool joined = parts.size() == 1;  // parts of a GPU's weights are joined
  ensure(joined || parts.size() == clamps.size(), parts.size(), " projections with ", clamps.size(),
         " clamps");
  const TensorView clamped = clamped_.view().slice(0, 0, x.shape[0]).slice(1, 0, x.shape[1]);
  const int64_t width = out.shape[1] / std::ssize(clamps);
  for (size_t part = 0; part < clamps.size(); ++part) {
    const auto begin = static_cast<int64_t>(part) * width;
    const TensorView to = out.slice(1, begin, begin + width);
    Linear linear = parts[joined ? 0 : part];
    if (joined) linear.weight = linear.weight.rows(begin, begin + width);
    if (joined && !linear.bias.empty()) linear.bias = linear.bias.slice(0, begin, begin + width);
    kernels::clamp_between(x, clamps[part].in_min, clamps[part].in_max, clamped, context.stream);
    kernels::linear(clamped, linear, to, context);
    kernels::clamp_between(to, clamps[part].out_min, clamps[part].out_max, to, context.stream);
  }
}

void VisionEncoding::add(const TensorView& x, const std::vector<Linear>& linear,
                         const std::vector<VisionClip>& clamps, const kernels::Norm& post_norm, Range& range,
                         const OpContext& context) {
  if (!spec_.clamps)
    return kernels::linear_add(x, linear.front(), range.residual, context,
                               spec_.post_norms ? post_norm : kernels::Norm());
  const TensorView addend = addend_.view().slice(0, 0, x.shape[0]);
  project_clipped(x, linear, clamps, addend, context);
  kernels::norm_add(addend, spec_.post_norms ? post_norm : kernels::Norm(), range.residual, context);
}

void VisionEncoding::project(const VisionLayer& layer, Range& range, const OpContext& context) {
  const TensorView qkv = qkv_.view().slice(0, range.begin, range.end);
  if (spec_.clamps) {
    const TensorView normalized = addend_.view().slice(0, 0, range.num_rows());
    kernels::read(range.residual, layer.attention_norm, normalized, context);
    project_clipped(normalized, layer.qkv, layer.qkv_clamps, qkv, context);
  } else {
    kernels::norm_linear(range.residual, {.norm = layer.attention_norm, .linear = layer.qkv, .out = qkv},
                         context);
  }
  if (spec_.rotates) rotate(layer, range, context.stream);
}

void VisionEncoding::rotate(const VisionLayer& layer, const Range& range, Stream& stream) const {
  const int64_t hidden = spec_.hidden_size, head_dim = spec_.head_dim();
  const TensorView qkv = qkv_.view().slice(0, range.begin, range.end);
  const auto heads = [&](int64_t part) {
    return qkv.slice(1, part * hidden, (part + 1) * hidden).split(1, head_dim);
  };
  const View<const int32_t> positions =
      patch_indices_.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.num_rows()));
  if (spec_.head_norms)
    kernels::rms_norm(heads(2), tower_.zeros(), spec_.norm_eps, heads(2), stream, /*weight_offset=*/1.0f);
  kernels::NormRopeArgs args{.q = heads(0),
                             .k = heads(1),
                             .q_norm = layer.q_norm,
                             .k_norm = layer.k_norm,
                             .eps = spec_.norm_eps,
                             .positions = positions};
  if (!spec_.split_heads) {
    args.cos = cos_;
    args.sin = sin_;
    return kernels::norm_rope(args, stream);
  }
  kernels::norm_rope(args, stream);
  // The angles of rows precede those of columns.
  const int64_t half = head_dim / 2, num_pairs = head_dim / 4;
  for (const TensorView& x : {heads(0), heads(1)}) {
    kernels::rope(x.slice(2, 0, half), positions, cos_.view().slice(1, num_pairs, half),
                  sin_.view().slice(1, num_pairs, half), stream);
    kernels::rope(x.slice(2, half, head_dim), positions, cos_.view().slice(1, 0, num_pairs),
                  sin_.view().slice(1, 0, num_pairs), stream);
  }
}

void VisionEncoding::attend(bool in_windows, const Range& range, Stream& stream) {
  const int64_t hidden = spec_.hidden_size, head_dim = spec_.head_dim();
  const int32_t num_rows = range.num_rows();
  const auto heads = [&](int64_t part, const TensorView& rows) {
    return rows.slice(1, part * hidden, (part + 1) * hidden).split(1, head_dim);
  };
  // A page is one patch.
  const auto pages = [&](int64_t part) { return heads(part, qkv_).split(0, 1); };
  const Range::Queries& queries = in_windows ? range.windows : range.whole;
  const kernels::QueryBatch batch{.cu_seqlen_q = queries.cu_seqlen_q,
                                  .seqlen_kv = queries.seqlen_kv,
                                  .max_seqlen_q = queries.max_seqlen_q,
                                  .num_tokens = num_rows,
                                  .max_seqlen_kv = queries.max_seqlen_kv};
  if (planned_ != &queries) plan_->plan(batch, kUnmasked, stream);
  planned_ = &queries;
  kernels::attention(
      {.q = heads(0, qkv_.view().slice(0, range.begin, range.end)),
       .out = attended_.view().slice(0, 0, num_rows).split(1, head_dim),
       .lse = {},
       .kv = {.k = pages(1),
              .v = pages(2),
              .index = {.kind = kernels::KvIndexKind::kContiguous,
                        .page_size = 1,
                        .indptr = queries.cu_seqlen_kv}},
       .batch = batch,
       .attention_mask = kUnmasked,
       .score = {.scale = spec_.attention_scale > 0.0f ? spec_.attention_scale
                                                       : 1.0f / std::sqrt(static_cast<float>(head_dim))}},
      *plan_, stream);
}

void VisionEncoding::run_mlp(const VisionLayer& layer, Range& range, const OpContext& context) {
  const auto part = [&](const Tensor& rows) { return rows.view().slice(0, 0, range.num_rows()); };
  const TensorView inner = part(inner_);
  if (spec_.clamps) {
    const TensorView normalized = part(addend_), gate_up = part(gate_up_);
    kernels::read(range.residual, layer.mlp_norm, normalized, context);
    project_clipped(normalized, layer.gate_up, layer.gate_up_clamps, gate_up, context);
    kernels::gelu_tanh_mul(gate_up, inner, context.stream);
  } else if (spec_.gated_mlp) {
    kernels::norm_gated_linear(range.residual,
                               {.norm = layer.mlp_norm,
                                .gate_up = layer.gate_up,
                                .activation = spec_.gate,
                                .gate_up_out = part(gate_up_),
                                .out = inner},
                               context);
  } else {
    kernels::norm_activated_linear(
        range.residual,
        {.norm = layer.mlp_norm, .linear = layer.gate_up, .activation = spec_.activation, .out = inner},
        context);
  }
  add(inner, layer.down, layer.down_clamps, layer.mlp_post_norm, range, context);
}

TensorView VisionEncoding::out_columns(size_t index, const Range& range) const {
  const int64_t per_token = spec_.processor.patches_per_token();
  const int64_t begin = static_cast<int64_t>(index) * spec_.out_size;
  return out_.view()
      .slice(0, range.begin / per_token, range.end / per_token)
      .slice(1, begin, begin + spec_.out_size);
}

void VisionEncoding::end_layer(int layer, Range& range, const OpContext& context) {
  for (size_t i = 0; i < weights_.deepstack.size(); ++i)
    if (spec_.deepstack_layers[i] == layer)
      merge(weights_.deepstack[i], /*normalizes_joined=*/true, out_columns(1 + i, range), range, context);
  if (layer + 1 == spec_.num_layers)
    merge(weights_.merger, /*normalizes_joined=*/false, out_columns(0, range), range, context);
}

void VisionEncoding::merge(const VisionMerger& merger, bool normalizes_joined, const TensorView& out,
                           Range& range, const OpContext& context) {
  const int64_t per_token = spec_.processor.patches_per_token(), hidden = spec_.hidden_size;
  const int64_t num_rows = range.num_rows(), num_tokens = num_rows / per_token;
  // The first elements of the tensor as [num_tokens, width].
  const auto tokens = [&](const Tensor& memory, int64_t width) {
    return memory.view()
        .reshape({memory.view().num_elements()})
        .slice(0, 0, num_tokens * width)
        .reshape({num_tokens, width});
  };
  const TensorView x = tokens(merged_, hidden * per_token);
  kernels::read(range.residual, normalizes_joined ? kernels::Norm() : merger.norm,
                x.reshape({num_rows, hidden}), context);
  if (normalizes_joined)
    kernels::layer_norm(x, merger.norm.weight, merger.norm.bias, merger.norm.eps, x, context.stream);
  const auto project = [&](const TensorView& from, const TensorView& inner) {
    kernels::linear(from, merger.in.front(), inner, context);
    kernels::gelu(inner, context.stream);
    kernels::linear(inner, merger.out.front(), out, context);
  };
  switch (spec_.merge) {
    case VisionMerge::kJoin:
      return project(x, tokens(merged_inner_, hidden * per_token));
    case VisionMerge::kChannelJoin: {
      const TensorView joined = tokens(merged_inner_, hidden * per_token), mixed = tokens(merged_, hidden);
      kernels::join_channels(x, per_token, joined, context.stream);
      kernels::linear(joined, merger.join.front(), mixed, context);
      return project(mixed, tokens(merged_inner_, spec_.out_size));
    }
    case VisionMerge::kScaledMean: {
      const TensorView mean = tokens(merged_inner_, hidden);
      kernels::average_patches({.x = x,
                                .factor = std::sqrt(static_cast<float>(hidden)),
                                .bias = merger.std_bias,
                                .scale = merger.std_scale,
                                .out = mean},
                               context.stream);
      kernels::rms_norm(mean, merger.token_norm, spec_.merge_eps, mean, context.stream);
      return kernels::linear(mean, merger.out.front(), out, context);
    }
    case VisionMerge::kMean: {
      const TensorView mean = tokens(merged_inner_, hidden);
      kernels::average_patches({.x = x, .out = mean}, context.stream);
      kernels::rms_norm(mean, merger.token_norm, spec_.merge_eps, mean, context.stream);
      return kernels::linear(mean, merger.out.front(), out, context);
    }
  }
}

}  // namespace attend
