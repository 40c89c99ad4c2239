// The memory and the inputs of a VisionEncoding: what its constructor makes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/model/multimodal/vision_encoding.h"
#include "attend/tensor/arena.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

// Bytes of a row of the position table and its weight.
constexpr int64_t kTapBytes = sizeof(kernels::TableTap);

// Two neighbors on one axis of the position table. The image's grid spans the whole table: its corners have
// the table's corner rows.
struct AxisTap {
  int low, high;
  float high_weight;

  AxisTap(int index, int size, int side) {
    const float at = static_cast<float>(index * (side - 1)) / static_cast<float>(std::max(size - 1, 1));
    low = static_cast<int>(at);
    high = std::min(low + 1, side - 1);
    high_weight = at - static_cast<float>(low);
  }
};

}  // namespace

// Views of the integers are valid after upload().
class VisionEncoding::Indices {
 public:
  // Adds integers. `view` is set to them.
  void add(std::vector<int32_t> values, View<const int32_t>& view) {
    views_.push_back({values_.size(), values.size(), &view});
    values_.insert(values_.end(), values.begin(), values.end());
  }
  const std::vector<int32_t>& values() const { return values_; }
  void set_views(const int32_t* uploaded) const {
    for (const auto& [first, count, view] : views_) *view = {uploaded + first, count};
  }

 private:
  struct Entry {
    size_t first, count;
    View<const int32_t>* view;
  };
  std::vector<int32_t> values_;
  std::vector<Entry> views_;
};

VisionEncoding::VisionEncoding(const VisionTower& tower, std::shared_ptr<const ImageItem> image,
                               Stream& stream, int range_patches)
    : tower_(tower),
      spec_(tower.spec()),
      weights_(tower.weights()),
      image_(std::move(image)),
      layout_(make_patch_layout(*image_, spec_)),
      device_(tower.placement().device),
      num_patches_(layout_.num_patches) {
  const int longest = std::max(image_->rows, image_->columns) * spec_.processor.merge_size;
  require(spec_.axis_positions == 0 || longest <= spec_.axis_positions, "image of ", longest,
          " patches on one side: the model has positions for ", spec_.axis_positions);
  if (range_patches == 0) range_patches = device_.type == DeviceType::kCpu ? kRangePatches : kGpuRangePatches;
  const auto bounds = divide(range_patches);
  for (const auto& [begin, end] : bounds) max_range_ = std::max(max_range_, int64_t{end} - begin);
  allocate();
  for (const auto& [begin, end] : bounds) {
    const auto part = [&](const Tensor& rows) { return rows.view().slice(0, begin, end); };
    ranges_.push_back({.begin = begin,
                       .end = end,
                       .residual = kernels::Residual(
                           {.sum = part(sum_), .scratch = part(scratch_), .gathered = part(gathered_)})});
  }
  const Image& pixels = image_->pixels;
  pixels_ = upload(Tensor(TensorView::contiguous(const_cast<uint8_t*>(pixels.pixels.data()), DType::kU8,
                                                 {pixels.height, pixels.width, Image::kChannels}),
                          std::const_pointer_cast<ImageItem>(image_)),
                   stream);
  make_indices(stream);
  make_taps(stream);
  if (spec_.rotates) make_angles(stream);
  plan_.emplace(kernels::AttentionPlanLimits{.max_reqs = static_cast<int>(layout_.cu_windows.size()),
                                             .max_tokens = static_cast<int>(max_range_),
                                             .max_kv_tokens = num_patches_,
                                             .num_q_heads = spec_.num_heads,
                                             .num_kv_heads = spec_.num_heads,
                                             .head_dim_v = spec_.head_dim(),
                                             .split_rule = kernels::SplitRule::kNone,
                                             .kv_dtype = tower_.dtype()},
                device_);
}

std::vector<std::pair<int32_t, int32_t>> VisionEncoding::divide(int range_patches) const {
  const int per_token = spec_.processor.patches_per_token();
  std::vector<std::pair<int32_t, int32_t>> bounds;
  if (spec_.window_side == 0) {
    const int32_t step = std::max(1, range_patches / per_token) * per_token;
    for (int32_t begin = 0; begin < layout_.num_patches; begin += step)
      bounds.emplace_back(begin, std::min(layout_.num_patches, begin + step));
    return bounds;
  }
  const std::vector<int32_t>& cu_windows = layout_.cu_windows;
  for (size_t window = 0, end = 0; window + 1 < cu_windows.size(); window = end) {
    end = window + 1;
    while (end + 1 < cu_windows.size() && cu_windows[end + 1] - cu_windows[window] <= range_patches) ++end;
    bounds.emplace_back(cu_windows[window], cu_windows[end]);
  }
  return bounds;
}

// All but the result are one block of memory.
void VisionEncoding::allocate() {
  struct Buffer {
    Tensor& tensor;
    int64_t rows, columns;
    DType dtype;
  };
  const int64_t hidden = spec_.hidden_size, intermediate = spec_.intermediate_size;
  const int64_t per_token = spec_.processor.patches_per_token(), joined = hidden * per_token;
  const auto axes = spec_.processor.patch_axes();
  const int64_t patch_size = std::accumulate(axes.begin(), axes.end(), int64_t{1}, std::multiplies<>());
  const int64_t merged_width = std::max(joined, int64_t{spec_.out_size});
  const DType dtype = tower_.dtype();
  std::vector<Buffer> buffers{{sum_, num_patches_, hidden, dtype},
                              {scratch_, num_patches_, hidden, dtype},
                              {gathered_, num_patches_, hidden, dtype},
                              {qkv_, num_patches_, 3 * hidden, dtype},
                              {patches_, max_range_, patch_size, dtype},
                              {attended_, max_range_, hidden, dtype},
                              {inner_, max_range_, intermediate, dtype},
                              {merged_, max_range_ / per_token, merged_width, dtype},
                              {merged_inner_, max_range_ / per_token, merged_width, dtype}};
  if (spec_.gated_mlp) buffers.push_back({gate_up_, max_range_, 2 * intermediate, dtype});
  if (spec_.clamps) {
    buffers.push_back({clamped_, max_range_, std::max(hidden, intermediate), dtype});
    buffers.push_back({addend_, max_range_, hidden, dtype});
  }
  if (spec_.rotates) {
    buffers.push_back({cos_, num_patches_, spec_.head_dim() / 2, DType::kF32});
    buffers.push_back({sin_, num_patches_, spec_.head_dim() / 2, DType::kF32});
  }
  // Some checkpoints have quantized towers.
  const int64_t widest = std::max({joined, intermediate, patch_size, int64_t{spec_.out_size}});
  size_t workspace_bytes = 0;
  for (const WeightFormat format : {WeightFormat::kPlain, WeightFormat::kFp8})
    workspace_bytes =
        std::max(workspace_bytes, kernels::linear_workspace_bytes(max_range_, widest, device_, format));
  buffers.push_back({workspace_, 1, static_cast<int64_t>(workspace_bytes), DType::kU8});
  size_t num_bytes = 0;
  for (const Buffer& buffer : buffers)
    num_bytes +=
        Arena::padded_bytes(static_cast<size_t>(buffer.rows * buffer.columns) * size_of(buffer.dtype));
  Arena arena(num_bytes, "image", device_);
  for (const Buffer& buffer : buffers)
    buffer.tensor = arena.allocate({buffer.rows, buffer.columns}, buffer.dtype);
  out_ = Tensor::empty({image_->num_tokens(), spec_.row_size()}, dtype, device_);
  if (spec_.window_side > 0)
    ordered_ = Tensor::empty({image_->num_tokens(), spec_.row_size()}, dtype, device_);
}

Tensor VisionEncoding::upload(const Tensor& on_host, Stream& stream) const {
  if (device_.type == DeviceType::kCpu) return on_host;
  const TensorView flat = on_host.view().reshape({on_host.view().num_elements()});
  const Tensor copy = Tensor::empty({flat.shape[0]}, flat.dtype, device_);
  cuda::copy(flat, copy, stream);
  TensorView view = on_host;
  view.data = copy.view().data;
  view.device = device_;
  return {view, copy.storage()};
}

void VisionEncoding::make_indices(Stream& stream) {
  Indices indices;
  // Rows, then columns: positions of the rotary embeddings.
  indices.add(layout_.patch_rows, patch_rows_);
  indices.add(layout_.patch_columns, patch_columns_);
  std::vector<int32_t> order(static_cast<size_t>(num_patches_));
  std::iota(order.begin(), order.end(), 0);
  indices.add(order, patch_indices_);
  View<const int32_t> cu_image, cu_windows;
  indices.add({0, layout_.num_patches}, cu_image);
  if (spec_.window_side > 0) {
    indices.add(layout_.cu_windows, cu_windows);
    std::vector<int32_t> places(layout_.tokens.size());
    for (size_t i = 0; i < places.size(); ++i)
      places[static_cast<size_t>(layout_.tokens[i])] = static_cast<int32_t>(i);
    indices.add(std::move(places), places_);
  }
  size_t window = 0;  // the first one of the range
  std::vector<size_t> first_windows;
  for (Range& range : ranges_) {
    range.whole.max_seqlen_q = range.num_rows();
    range.whole.max_seqlen_kv = layout_.num_patches;
    indices.add({0, range.num_rows()}, range.whole.cu_seqlen_q);
    indices.add({layout_.num_patches}, range.whole.seqlen_kv);
    first_windows.push_back(window);
    if (spec_.window_side == 0) continue;
    std::vector<int32_t> cu_seqlen_q{0}, lengths;
    for (; layout_.cu_windows[window] < range.end; ++window) {
      lengths.push_back(layout_.cu_windows[window + 1] - layout_.cu_windows[window]);
      cu_seqlen_q.push_back(cu_seqlen_q.back() + lengths.back());
    }
    range.windows.max_seqlen_q = range.windows.max_seqlen_kv = *std::ranges::max_element(lengths);
    indices.add(std::move(cu_seqlen_q), range.windows.cu_seqlen_q);
    indices.add(std::move(lengths), range.windows.seqlen_kv);
  }
  indices_ = upload(Tensor::from<int32_t>(indices.values(), {static_cast<int64_t>(indices.values().size())}),
                    stream);
  indices.set_views(indices_.as<const int32_t>());
  for (size_t i = 0; i < ranges_.size(); ++i) {
    ranges_[i].whole.cu_seqlen_kv = cu_image.data();
    if (spec_.window_side > 0) ranges_[i].windows.cu_seqlen_kv = cu_windows.data() + first_windows[i];
  }
}

void VisionEncoding::make_taps(Stream& stream) {
  taps_per_row_ = spec_.position_side > 0 ? 4 : spec_.axis_positions > 0 ? 2 : 0;
  if (taps_per_row_ == 0) return;
  const int side = spec_.position_side, merge = spec_.processor.merge_size;
  std::vector<kernels::TableTap> taps;
  taps.reserve(static_cast<size_t>(num_patches_ * taps_per_row_));
  for (size_t i = 0; i < static_cast<size_t>(num_patches_); ++i) {
    const int patch_row = layout_.patch_rows[i], patch_column = layout_.patch_columns[i];
    if (spec_.axis_positions > 0) {
      // The table of columns is followed by that of rows.
      taps.push_back({patch_column, 1.0f});
      taps.push_back({spec_.axis_positions + patch_row, 1.0f});
      continue;
    }
    const AxisTap row(patch_row, image_->rows * merge, side),
        column(patch_column, image_->columns * merge, side);
    const float low_row = 1.0f - row.high_weight, low_column = 1.0f - column.high_weight;
    taps.push_back({row.low * side + column.low, low_row * low_column});
    taps.push_back({row.low * side + column.high, low_row * column.high_weight});
    taps.push_back({row.high * side + column.low, row.high_weight * low_column});
    taps.push_back({row.high * side + column.high, row.high_weight * column.high_weight});
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(taps.data());
  taps_ = upload(Tensor::from<uint8_t>(std::span(bytes, taps.size() * kTapBytes),
                                       {static_cast<int64_t>(taps.size()) * kTapBytes}),
                 stream);
}

void VisionEncoding::make_angles(Stream& stream) {
  const int64_t head_dim = spec_.head_dim(), num_pairs = head_dim / 2, row_pairs = head_dim / 4;
  const int64_t num_places = int64_t{std::max(image_->rows, image_->columns)} * spec_.processor.merge_size;
  const Tensor cos = Tensor::empty({num_places, num_pairs}, DType::kF32);
  const Tensor sin = Tensor::empty({num_places, num_pairs}, DType::kF32);
  std::vector<uint8_t> pair_axes;  // 0: row, 1: column
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    const bool of_row = pair < row_pairs;
    pair_axes.push_back(of_row ? 0 : 1);
    const auto exponent =
        static_cast<double>(4 * (of_row ? pair : pair - row_pairs) + (of_row ? 0 : spec_.column_shift)) /
        static_cast<double>(head_dim);
    const auto frequency = static_cast<float>(std::pow(spec_.rope_theta, -exponent));
    for (int64_t place = 0; place < num_places; ++place) {
      const float angle = static_cast<float>(place) * frequency;
      cos.view()[place].as<float>()[pair] = static_cast<float>(std::cos(double{angle}));
      sin.view()[place].as<float>()[pair] = static_cast<float>(std::sin(double{angle}));
    }
  }
  table_cos_ = upload(cos, stream);
  table_sin_ = upload(sin, stream);
  kernels::axis_angles({.positions = {patch_rows_.data(), static_cast<size_t>(2 * num_patches_)},
                        .pair_axes = pair_axes,
                        .table_cos = table_cos_,
                        .table_sin = table_sin_,
                        .cos = cos_,
                        .sin = sin_},
                       stream);
}

}  // namespace attend
