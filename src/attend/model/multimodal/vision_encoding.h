// VisionEncoding: an image that a VisionTower encodes in parts, between which a caller may do other work.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/fused/operations.h"
#include "attend/model/multimodal/image_item.h"
#include "attend/model/multimodal/patch_layout.h"
#include "attend/model/multimodal/vision_tower.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Patches are divided into ranges of about `range_patches`. A part is, for one range, the queries, keys and
// values of a layer or the rest of this layer, so its time is bounded for images of any size, except that of
// attention, which grows with the patches of the image.
class VisionEncoding {
 public:
  static constexpr int kRangePatches = 512;
  // Allocates the activations. `tower` must outlive this object.
  VisionEncoding(const VisionTower& tower, std::shared_ptr<const ImageItem> image,
                 int range_patches = kRangePatches);
  VisionEncoding(const VisionEncoding&) = delete;

  // Computes the next part. Returns false if there is none.
  bool advance(Stream& stream);

  const ImageItem& image() const { return *image_; }
  // After the last part: rows of the image's tokens, row by row of the image: f32 [num_tokens,
  // spec.row_size()].
  Tensor rows() const;

 private:
  // Adjacent patches that consist of whole tokens and, with windows, of whole windows.
  struct Range {
    int32_t begin = 0, end = 0;        // patches
    size_t window = 0;                 // the first one
    std::vector<int32_t> cu_seqlen_q;  // of windows, from `begin` on
    std::vector<int32_t> lengths;      // of windows
    kernels::Residual residual;
  };

  void make_ranges(int range_patches);
  void make_angles();
  void embed(Range& range, const kernels::OpContext& context);
  void add_positions(const Range& range) const;
  void add_axis_positions(const Range& range) const;
  // out = x W per part, side by side, with inputs and outputs clamped. x is not changed.
  void project_clipped(const TensorView& x, const std::vector<Linear>& parts,
                       const std::vector<VisionClip>& clamps, const TensorView& out,
                       const kernels::OpContext& context);
  // residual += post_norm(x W).
  void add(const TensorView& x, const std::vector<Linear>& linear, const std::vector<VisionClip>& clamps,
           const kernels::Norm& post_norm, Range& range, const kernels::OpContext& context);
  void rotate(const VisionLayer& layer, const Range& range, Stream& stream) const;
  void project(const VisionLayer& layer, Range& range, const kernels::OpContext& context);
  void attend(bool in_windows, const Range& range, Stream& stream);
  void run_mlp(const VisionLayer& layer, Range& range, const kernels::OpContext& context);
  // Ends a layer for the range: the rows of deepstack layers and, after the last layer, of the tokens.
  void end_layer(int layer, Range& range, const kernels::OpContext& context);
  // Writes rows of `out` in the order of the layout. `normalizes_joined`: the norm is over joined patches.
  void merge(const VisionMerger& merger, bool normalizes_joined, const TensorView& out, Range& range,
             const kernels::OpContext& context);
  // Columns of out_ that `index` writes: 0: the tokens, then the deepstack layers.
  TensorView out_columns(size_t index, const Range& range) const;

  const VisionTower& tower_;
  const VisionSpec& spec_;
  const VisionWeights& weights_;
  const std::shared_ptr<const ImageItem> image_;
  const PatchLayout layout_;
  int64_t num_patches_, max_range_ = 0;  // max_range_: patches of the largest range
  Tensor sum_, scratch_, gathered_;      // [num_patches, hidden_size]: Residual::Memory
  Tensor cos_, sin_;                     // f32 [num_patches, head_dim / 2]; empty: no rotation
  std::vector<int32_t> patch_indices_;   // 0, 1, ...: rows of cos_ and sin_
  Tensor qkv_;                           // [num_patches, 3 * hidden_size]
  Tensor out_;                           // [num_tokens, row_size], in the order of the layout
  // Buffers for one range: [max_range_, hidden_size]; [max_range_, 2 * intermediate_size] with a gate;
  // [max_range_, intermediate_size]; twice [tokens of the range, hidden_size * patches per token].
  Tensor attended_, gate_up_, inner_, merged_, merged_inner_;
  // Clamped inputs of a projection, [max_range_, max(hidden_size, intermediate_size)], and what it adds,
  // [max_range_, hidden_size]; empty without clamps.
  Tensor clamped_, addend_;
  Tensor workspace_;
  std::optional<kernels::AttentionPlan> plan_;
  std::vector<Range> ranges_;
  // Next part: phase 0 of layer -1 embeds the patches; phases 0 and 1 of other layers are the two parts.
  int layer_ = -1, phase_ = 0;
  size_t range_ = 0;
};

}  // namespace attend
