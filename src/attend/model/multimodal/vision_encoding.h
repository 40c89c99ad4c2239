// VisionEncoding: an image that a VisionTower encodes in parts, between which a caller may do other work.
#pragma once

#include <memory>
#include <optional>
#include <utility>
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
  // A GPU needs more rows to be busy.
  static constexpr int kGpuRangePatches = 4096;
  // Allocates the activations, and copies the pixels and the layout to the tower's device. `stream`: of that
  // device, also for advance(). `range_patches`: 0: the device's. `tower` must outlive this object.
  VisionEncoding(const VisionTower& tower, std::shared_ptr<const ImageItem> image, Stream& stream,
                 int range_patches = 0);
  VisionEncoding(const VisionEncoding&) = delete;

  // Computes the next part. Returns false if there is none. On a GPU, only queues it.
  bool advance(Stream& stream);
  // Floating-point operations of the products of the next part; 0 if there is none.
  double part_flops() const;

  const ImageItem& image() const { return *image_; }
  // After the last part: rows of the image's tokens, row by row of the image: [num_tokens, spec.row_size()]
  // of tower.dtype().
  Tensor rows() const;

 private:
  // Adjacent patches that consist of whole tokens and, with windows, of whole windows.
  struct Range {
    int32_t begin = 0, end = 0;  // patches
    // Queries of the range's patches, on the device: those of the image, and with windows those of the
    // windows.
    struct Queries {
      View<const int32_t> cu_seqlen_q = {}, seqlen_kv = {};
      const int32_t* cu_seqlen_kv = nullptr;
      int max_seqlen_q = 0, max_seqlen_kv = 0;
    } whole = {}, windows = {};
    kernels::Residual residual;

    int32_t num_rows() const { return end - begin; }
  };

  // Integers on the host that upload() copies to the device in one piece.
  class Indices;

  std::vector<std::pair<int32_t, int32_t>> divide(int range_patches) const;  // begins and ends of the ranges
  void allocate();
  void make_indices(Stream& stream);
  void make_taps(Stream& stream);
  void make_angles(Stream& stream);
  // Returns the tensor itself, or a copy on the device.
  Tensor upload(const Tensor& on_host, Stream& stream) const;
  bool has_windows(int layer) const;
  void embed(Range& range, const kernels::OpContext& context);
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
  const Device device_;
  int64_t num_patches_, max_range_ = 0;  // max_range_: patches of the largest range
  Tensor pixels_;                        // u8 [height, width, 3]
  Tensor indices_;                       // of all views of integers
  View<const int32_t> patch_rows_, patch_columns_, patch_indices_;  // [num_patches]; indices: 0, 1, ...
  View<const int32_t> places_;       // with windows: place in the layout of each token of the image
  Tensor taps_;                      // u8: TableTap [num_patches * taps_per_row_]
  int taps_per_row_ = 0;             // rows of `positions` that a patch adds
  Tensor sum_, scratch_, gathered_;  // [num_patches, hidden_size]: Residual::Memory
  Tensor cos_, sin_;                 // f32 [num_patches, head_dim / 2]; empty: no rotation
  Tensor table_cos_, table_sin_;     // f32 [places on one side, head_dim / 2]
  Tensor qkv_;                       // [num_patches, 3 * hidden_size]
  Tensor out_, ordered_;             // [num_tokens, row_size]: in the order of the layout, of the image
  // Buffers for one range: [max_range_, pixels of a patch]; [max_range_, hidden_size]; [max_range_, 2 *
  // intermediate_size] with a gate; [max_range_, intermediate_size]; twice [tokens of the range, hidden_size
  // * patches per token].
  Tensor patches_, attended_, gate_up_, inner_, merged_, merged_inner_;
  // Clamped inputs of a projection, [max_range_, max(hidden_size, intermediate_size)], and what it adds,
  // [max_range_, hidden_size]; empty without clamps.
  Tensor clamped_, addend_;
  Tensor workspace_;
  std::optional<kernels::AttentionPlan> plan_;
  const Range::Queries* planned_ = nullptr;  // of plan_
  std::vector<Range> ranges_;
  // Next part: phase 0 of layer -1 embeds the patches; phases 0 and 1 of other layers are the two parts.
  int layer_ = -1, phase_ = 0;
  size_t range_ = 0;
};

}  // namespace attend
