#include "attend/model/multimodal/vision_encoding.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"

namespace attend {

using kernels::OpContext;

namespace {

constexpr kernels::AttentionMask kUnmasked{.causal = false};

Tensor empty_rows(int64_t count, int64_t width) { return Tensor::empty({count, width}, DType::kF32); }

// out[token, channel, patch] = x[token, patch, channel].
void transpose_channels(const TensorView& x, int64_t patches_per_token, const TensorView& out) {
  const int64_t channels = x.shape[1] / patches_per_token;
  parallel_for_rows(x.shape[0], x.shape[1], [&](int64_t token) {
    const float* const from = x[token].as<const float>();
    float* const to = out[token].as<float>();
    for (int64_t patch = 0; patch < patches_per_token; ++patch)
      for (int64_t channel = 0; channel < channels; ++channel)
        to[channel * patches_per_token + patch] = from[patch * channels + channel];
  });
}

// out[token, channel] = mean of x[token, patch, channel] over patches.
void average_patches(const TensorView& x, int64_t patches_per_token, const TensorView& out) {
  const int64_t channels = x.shape[1] / patches_per_token;
  const float factor = 1.0f / static_cast<float>(patches_per_token);
  parallel_for_rows(x.shape[0], x.shape[1], [&](int64_t token) {
    const float* const from = x[token].as<const float>();
    float* const to = out[token].as<float>();
    std::copy_n(from, channels, to);
    for (int64_t patch = 1; patch < patches_per_token; ++patch)
      for (int64_t channel = 0; channel < channels; ++channel)
        to[channel] += from[patch * channels + channel];
    for (int64_t channel = 0; channel < channels; ++channel) to[channel] *= factor;
  });
}

void clamp_rows(const TensorView& x, const TensorView& low, const TensorView& high, const TensorView& out) {
  const float min = *low.as<const float>(), max = *high.as<const float>();
  parallel_for_rows(x.shape[0], x.shape[1], [&](int64_t row) {
    const float* const from = x[row].as<const float>();
    float* const to = out[row].as<float>();
    for (int64_t i = 0; i < x.shape[1]; ++i) to[i] = std::min(std::max(from[i], min), max);
  });
}

// Divides each head by its root mean square. x: [num_rows, num_heads, head_dim].
void normalize_heads(const TensorView& x, float eps) {
  parallel_for_rows(x.shape[0], 2 * x.shape[1] * x.shape[2], [&](int64_t row) {
    for (int64_t head = 0; head < x.shape[1]; ++head) {
      float* const values = x[row][head].as<float>();
      float sum = 0.0f;
      for (int64_t i = 0; i < x.shape[2]; ++i) sum += values[i] * values[i];
      const float factor = 1.0f / std::sqrt(sum / static_cast<float>(x.shape[2]) + eps);
      for (int64_t i = 0; i < x.shape[2]; ++i) values[i] *= factor;
    }
  });
}

// x = (x * factor - bias) * scale, without bias and scale if they are empty.
void standardize(const TensorView& x, float factor, const TensorView& bias, const TensorView& scale) {
  parallel_for_rows(x.shape[0], x.shape[1], [&](int64_t row) {
    float* const values = x[row].as<float>();
    for (int64_t i = 0; i < x.shape[1]; ++i) {
      values[i] *= factor;
      if (!bias.empty()) values[i] = (values[i] - bias.as<const float>()[i]) * scale.as<const float>()[i];
    }
  });
}

}  // namespace

VisionEncoding::VisionEncoding(const VisionTower& tower, std::shared_ptr<const ImageItem> image,
                               int range_patches)
    : tower_(tower),
      spec_(tower.spec()),
      weights_(tower.weights()),
      image_(std::move(image)),
      layout_(make_patch_layout(*image_, spec_)),
      num_patches_(layout_.num_patches) {
  const int64_t hidden = spec_.hidden_size, intermediate = spec_.intermediate_size;
  const int64_t per_token = spec_.processor.patches_per_token(), joined = hidden * per_token;
  sum_ = empty_rows(num_patches_, hidden);
  scratch_ = empty_rows(num_patches_, hidden);
  gathered_ = empty_rows(num_patches_, hidden);
  qkv_ = empty_rows(num_patches_, 3 * hidden);
  out_ = empty_rows(image_->num_tokens(), spec_.row_size());
  make_ranges(range_patches);
  if (spec_.rotates) make_angles();
  attended_ = empty_rows(max_range_, hidden);
  if (spec_.gated_mlp) gate_up_ = empty_rows(max_range_, 2 * intermediate);
  inner_ = empty_rows(max_range_, intermediate);
  if (spec_.clamps) {
    clamped_ = empty_rows(max_range_, std::max(hidden, intermediate));
    addend_ = empty_rows(max_range_, hidden);
  }
  const int longest = std::max(image_->rows, image_->columns) * spec_.processor.merge_size;
  require(spec_.axis_positions == 0 || longest <= spec_.axis_positions, "image of ", longest,
          " patches on one side: the model has positions for ", spec_.axis_positions);
  merged_ = empty_rows(max_range_ / per_token, std::max(joined, int64_t{spec_.out_size}));
  merged_inner_ = empty_rows(max_range_ / per_token, std::max(joined, int64_t{spec_.out_size}));
  const auto axes = spec_.processor.patch_axes();
  const int64_t patch_size = std::accumulate(axes.begin(), axes.end(), int64_t{1}, std::multiplies<>());
  const int64_t widest = std::max({joined, intermediate, patch_size, int64_t{spec_.out_size}});
  const Device device = tower.placement().device;
  // Some checkpoints have quantized towers.
  size_t workspace_bytes = 0;
  for (const WeightFormat format : {WeightFormat::kPlain, WeightFormat::kFp8})
    workspace_bytes =
        std::max(workspace_bytes, kernels::linear_workspace_bytes(max_range_, widest, device, format));
  workspace_ = Tensor::empty({static_cast<int64_t>(workspace_bytes)}, DType::kU8);
  plan_.emplace(kernels::AttentionPlanLimits{.max_reqs = static_cast<int>(layout_.cu_windows.size()),
                                             .max_tokens = static_cast<int>(max_range_),
                                             .max_kv_tokens = num_patches_,
                                             .num_q_heads = spec_.num_heads,
                                             .num_kv_heads = spec_.num_heads,
                                             .head_dim_v = spec_.head_dim(),
                                             .split_rule = kernels::SplitRule::kNone,
                                             .kv_dtype = DType::kF32},
                device);
}

void VisionEncoding::make_ranges(int range_patches) {
  const int per_token = spec_.processor.patches_per_token();
  const std::vector<int32_t>& cu_windows = layout_.cu_windows;
  const auto add = [&](int32_t begin, int32_t end, size_t window, size_t window_end) {
    const auto part = [&](const Tensor& rows) { return rows.view().slice(0, begin, end); };
    Range& range = ranges_.emplace_back(Range{
        .begin = begin,
        .end = end,
        .window = window,
        .cu_seqlen_q = {},
        .lengths = {},
        .residual =
            kernels::Residual({.sum = part(sum_), .scratch = part(scratch_), .gathered = part(gathered_)})});
    max_range_ = std::max(max_range_, int64_t{end} - begin);
    if (spec_.window_side == 0) return;
    for (size_t i = window; i <= window_end; ++i) range.cu_seqlen_q.push_back(cu_windows[i] - begin);
    for (size_t i = window; i < window_end; ++i) range.lengths.push_back(cu_windows[i + 1] - cu_windows[i]);
  };
  if (spec_.window_side > 0) {
    for (size_t window = 0, end = 0; window + 1 < cu_windows.size(); window = end) {
      end = window + 1;
      while (end + 1 < cu_windows.size() && cu_windows[end + 1] - cu_windows[window] <= range_patches) ++end;
      add(cu_windows[window], cu_windows[end], window, end);
    }
    return;
  }
  const int32_t step = std::max(1, range_patches / per_token) * per_token;
  for (int32_t begin = 0; begin < layout_.num_patches; begin += step)
    add(begin, std::min(layout_.num_patches, begin + step), 0, 0);
}

void VisionEncoding::make_angles() {
  const int64_t head_dim = spec_.head_dim(), num_pairs = head_dim / 2, row_pairs = head_dim / 4;
  patch_indices_.resize(static_cast<size_t>(num_patches_));
  std::iota(patch_indices_.begin(), patch_indices_.end(), 0);
  cos_ = empty_rows(num_patches_, num_pairs);
  sin_ = empty_rows(num_patches_, num_pairs);
  std::vector<float> frequencies;
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    const bool of_row = pair < row_pairs;
    const auto exponent =
        static_cast<double>(4 * (of_row ? pair : pair - row_pairs) + (of_row ? 0 : spec_.column_shift)) /
        static_cast<double>(head_dim);
    frequencies.push_back(static_cast<float>(std::pow(spec_.rope_theta, -exponent)));
  }
  parallel_for_rows(num_patches_, 16 * num_pairs, [&](int64_t i) {
    for (int64_t pair = 0; pair < num_pairs; ++pair) {
      const auto& axis = pair < row_pairs ? layout_.patch_rows : layout_.patch_columns;
      const float angle =
          static_cast<float>(axis[static_cast<size_t>(i)]) * frequencies[static_cast<size_t>(pair)];
      cos_.view()[i].as<float>()[pair] = static_cast<float>(std::cos(double{angle}));
      sin_.view()[i].as<float>()[pair] = static_cast<float>(std::sin(double{angle}));
    }
  });
}

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
      const bool in_windows =
          spec_.window_side > 0 && std::ranges::find(spec_.full_layers, layer_) == spec_.full_layers.end();
      attend(in_windows, range, stream);
      add(attended_.view().slice(0, 0, range.end - range.begin), layer.o, layer.o_clamps,
          layer.attention_post_norm, range, context);
      run_mlp(layer, range, context);
      end_layer(layer_, range, context);
    }
  }
  if (++range_ < ranges_.size()) return true;
  range_ = 0;
  const bool ends_layer = layer_ < 0 || phase_ == 1;
  phase_ = ends_layer ? 0 : 1;
  layer_ += ends_layer ? 1 : 0;
  return layer_ < spec_.num_layers;
}

Tensor VisionEncoding::rows() const {
  ensure(layer_ == spec_.num_layers, "rows of an image after layer ", layer_, " of ", spec_.num_layers);
  if (spec_.window_side == 0) return out_;
  const Tensor ordered = empty_rows(image_->num_tokens(), spec_.row_size());
  for (int64_t i = 0; i < image_->num_tokens(); ++i)
    std::copy_n(out_.view()[i].as<float>(), spec_.row_size(),
                ordered.view()[layout_.tokens[static_cast<size_t>(i)]].as<float>());
  return ordered;
}

void VisionEncoding::embed(Range& range, const OpContext& context) {
  const Tensor patches = make_patches(*image_, layout_, range.begin, range.end, spec_.processor);
  const TensorView sum = range.residual.sum();
  kernels::linear(patches, weights_.patch_embedding.front(), sum, context);
  if (spec_.position_side > 0) add_positions(range);
  if (spec_.axis_positions > 0) add_axis_positions(range);
  if (!spec_.first_norm) return;
  kernels::rms_norm(sum, weights_.first_norm.weight, weights_.first_norm.eps, sum, context.stream);
}

// The image's grid spans the whole table: its corners have the table's corner rows.
void VisionEncoding::add_positions(const Range& range) const {
  const int side = spec_.position_side, merge = spec_.processor.merge_size;
  const TensorView table = weights_.positions.data, x = range.residual.sum();
  struct Tap {
    int low, high;
    float high_weight;
  };
  const auto tap = [&](int index, int size) -> Tap {
    const float at = static_cast<float>(index * (side - 1)) / static_cast<float>(std::max(size - 1, 1));
    const int low = static_cast<int>(at);
    return {low, std::min(low + 1, side - 1), at - static_cast<float>(low)};
  };
  visit_float_dtype(table.dtype, [&]<class T>(TypeTag<T>) {
    const auto table_row = [&](int row, int column) {
      return table[int64_t{row} * side + column].template as<const T>();
    };
    parallel_for_rows(x.shape[0], 4 * x.shape[1], [&](int64_t i) {
      const auto patch = static_cast<size_t>(range.begin + i);
      const Tap row = tap(layout_.patch_rows[patch], image_->rows * merge);
      const Tap column = tap(layout_.patch_columns[patch], image_->columns * merge);
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

// The table of columns is followed by that of rows.
void VisionEncoding::add_axis_positions(const Range& range) const {
  const TensorView table = weights_.positions.data, x = range.residual.sum();
  const int64_t hidden = spec_.hidden_size;
  visit_float_dtype(table.dtype, [&]<class T>(TypeTag<T>) {
    parallel_for_rows(x.shape[0], 2 * hidden, [&](int64_t i) {
      const auto patch = static_cast<size_t>(range.begin + i);
      const T* const of_column = table[0].template as<const T>() + layout_.patch_columns[patch] * hidden;
      const T* const of_row = table[1].template as<const T>() + layout_.patch_rows[patch] * hidden;
      float* const to = x[i].as<float>();
      for (int64_t feature = 0; feature < hidden; ++feature)
        to[feature] += static_cast<float>(of_column[feature]) + static_cast<float>(of_row[feature]);
    });
  });
}

void VisionEncoding::project_clipped(const TensorView& x, const std::vector<Linear>& parts,
                                     const std::vector<VisionClip>& clamps, const TensorView& out,
                                     const OpContext& context) {
  ensure(parts.size() == clamps.size(), parts.size(), " projections with ", clamps.size(), " clamps");
  const TensorView clamped = clamped_.view().slice(0, 0, x.shape[0]).slice(1, 0, x.shape[1]);
  const int64_t width = out.shape[1] / std::ssize(parts);
  for (size_t part = 0; part < parts.size(); ++part) {
    const auto begin = static_cast<int64_t>(part) * width;
    const TensorView to = out.slice(1, begin, begin + width);
    clamp_rows(x, clamps[part].in_min, clamps[part].in_max, clamped);
    kernels::linear(clamped, parts[part], to, context);
    clamp_rows(to, clamps[part].out_min, clamps[part].out_max, to);
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
    const TensorView normalized = addend_.view().slice(0, 0, range.end - range.begin);
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
      View<const int32_t>(patch_indices_)
          .subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.end - range.begin));
  if (spec_.head_norms) normalize_heads(heads(2), spec_.norm_eps);
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
  const int32_t num_rows = range.end - range.begin;
  const auto heads = [&](int64_t part, const TensorView& rows) {
    return rows.slice(1, part * hidden, (part + 1) * hidden).split(1, head_dim);
  };
  // A page is one patch.
  const auto pages = [&](int64_t part) { return heads(part, qkv_).split(0, 1); };
  const std::vector<int32_t> cu_range{0, num_rows}, image_length{layout_.num_patches},
      cu_image{0, layout_.num_patches};
  const std::vector<int32_t>& cu_seqlen_q = in_windows ? range.cu_seqlen_q : cu_range;
  const std::vector<int32_t>& lengths = in_windows ? range.lengths : image_length;
  const kernels::QueryBatch batch{.cu_seqlen_q = cu_seqlen_q,
                                  .seqlen_kv = lengths,
                                  .max_seqlen_q = in_windows ? *std::ranges::max_element(lengths) : num_rows,
                                  .num_tokens = num_rows};
  plan_->plan(batch, kUnmasked, stream);
  kernels::attention(
      {.q = heads(0, qkv_.view().slice(0, range.begin, range.end)),
       .out = attended_.view().slice(0, 0, num_rows).split(1, head_dim),
       .lse = {},
       .kv = {.k = pages(1),
              .v = pages(2),
              .index = {.kind = kernels::KvIndexKind::kContiguous,
                        .page_size = 1,
                        .indptr = in_windows ? layout_.cu_windows.data() + range.window : cu_image.data()}},
       .batch = batch,
       .attention_mask = kUnmasked,
       .score = {.scale = spec_.attention_scale > 0.0f ? spec_.attention_scale
                                                       : 1.0f / std::sqrt(static_cast<float>(head_dim))}},
      *plan_, stream);
}

void VisionEncoding::run_mlp(const VisionLayer& layer, Range& range, const OpContext& context) {
  const auto part = [&](const Tensor& rows) { return rows.view().slice(0, 0, range.end - range.begin); };
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
  const int64_t num_rows = range.end - range.begin, num_tokens = num_rows / per_token;
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
      transpose_channels(x, per_token, joined);
      kernels::linear(joined, merger.join.front(), mixed, context);
      return project(mixed, tokens(merged_inner_, spec_.out_size));
    }
    case VisionMerge::kScaledMean: {
      const TensorView mean = tokens(merged_inner_, hidden);
      average_patches(x, per_token, mean);
      standardize(mean, std::sqrt(static_cast<float>(hidden)), merger.std_bias, merger.std_scale);
      kernels::rms_norm(mean, merger.token_norm, spec_.merge_eps, mean, context.stream);
      return kernels::linear(mean, merger.out.front(), out, context);
    }
    case VisionMerge::kMean: {
      const TensorView mean = tokens(merged_inner_, hidden);
      average_patches(x, per_token, mean);
      kernels::rms_norm(mean, merger.token_norm, spec_.merge_eps, mean, context.stream);
      return kernels::linear(mean, merger.out.front(), out, context);
    }
  }
}

}  // namespace attend
