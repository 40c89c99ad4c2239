// VisionTower: the weights of a VisionSpec's encoder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attend/kernels/fused/operations.h"
#include "attend/model/config/model_placement.h"
#include "attend/model/config/vision_spec.h"
#include "attend/model/multimodal/image_item.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

// Bounds of a projection's inputs and outputs, f32 [1] each.
struct VisionClip {
  TensorView in_min, in_max, out_min, out_max;
};

struct VisionLayer {
  kernels::Norm attention_norm, mlp_norm;
  kernels::Norm attention_post_norm, mlp_post_norm;  // VisionSpec::post_norms
  TensorView q_norm, k_norm;                         // VisionSpec::head_norms
  std::vector<Linear> qkv, o, gate_up, down;         // gate_up: without a gate, up
  // VisionSpec::clamps: of the parts of these projections, in their order.
  std::vector<VisionClip> qkv_clamps, o_clamps, gate_up_clamps, down_clamps;
};

// Weights of a VisionMerge. Those that the merge does not have are empty.
struct VisionMerger {
  kernels::Norm norm;              // of patches; deepstack layers: of joined patches
  std::vector<Linear> join;        // kChannelJoin
  TensorView std_bias, std_scale;  // kScaledMean: [hidden_size]; empty: none
  TensorView token_norm;           // kMean, kScaledMean: RMSNorm of the mean
  std::vector<Linear> in, out;
};

struct VisionWeights {
  std::vector<Linear> patch_embedding;
  Weight positions;
  kernels::Norm first_norm;
  std::vector<VisionLayer> layers;
  VisionMerger merger;
  std::vector<VisionMerger> deepstack;
};

// Used by one thread.
class VisionTower {
 public:
  VisionTower(const VisionSpec& spec, const VisionNames& names, const ModelPlacement& placement);
  VisionTower(const VisionTower&) = delete;

  // All weights, with names below `prefix`. Slots point into the tower.
  std::vector<WeightSlot> weight_slots(const VisionPrefix& prefix);
  void adopt(LoadedWeights weights);
  size_t weight_bytes() const { return loaded_.num_bytes; }

  const VisionSpec& spec() const { return spec_; }
  const ModelPlacement& placement() const { return placement_; }
  const VisionWeights& weights() const { return weights_; }
  // Weights of a norm without weights, which has an offset of 1: f32 [head_dim].
  const TensorView& zeros() const { return zeros_.view(); }
  // Dtype of activations.
  DType dtype() const { return placement_.device.type == DeviceType::kCpu ? DType::kF32 : placement_.dtype; }

  // Encodes an image at once: VisionEncoding::rows().
  Tensor encode(std::shared_ptr<const ImageItem> image, Stream& stream) const;

 private:
  // Slots of the merger of tokens, and of those of deepstack layers.
  void add_merger(const VisionPrefix& prefix, std::vector<WeightSlot>& slots);
  void add_deepstack(const VisionPrefix& prefix, std::vector<WeightSlot>& slots);
  StoredForm stored_form() const;

  const VisionSpec spec_;
  const VisionNames& names_;
  const ModelPlacement placement_;
  VisionWeights weights_;
  Tensor ones_;   // f32 [hidden_size]: VisionMerger::token_norm of kScaledMean
  Tensor zeros_;  // f32 [head_dim]
  LoadedWeights loaded_;
};

}  // namespace attend
