// VisionTower: the encoder of a VisionSpec.
#pragma once

#include <string>
#include <vector>

#include "attend/kernels/fused/operations.h"
#include "attend/model/config/model_placement.h"
#include "attend/model/config/vision_spec.h"
#include "attend/model/multimodal/image_item.h"
#include "attend/model/multimodal/patch_layout.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

// Used by one thread.
class VisionTower {
 public:
  // `placement`: on a CPU.
  VisionTower(const VisionSpec& spec, const VisionNames& names, const ModelPlacement& placement);
  VisionTower(const VisionTower&) = delete;

  // All weights, with names below `prefix`. Slots point into the tower.
  std::vector<WeightSlot> weight_slots(const std::string& prefix);
  void adopt(LoadedWeights weights) { weights_ = std::move(weights); }
  size_t weight_bytes() const { return weights_.num_bytes; }

  // Encodes an image. Returns the rows of its tokens, row by row of the image: f32 [num_tokens,
  // spec.row_size()]. Allocates memory for the activations of all patches.
  Tensor encode(const ImageItem& image, Stream& stream) const;

 private:
  struct Layer {
    kernels::Norm attention_norm, mlp_norm;
    std::vector<Linear> qkv, o, gate_up, down;  // gate_up: without a gate, up
  };
  // Joins the patches of a token, and projects them to the decoder's hidden size.
  struct Merger {
    kernels::Norm norm;
    std::vector<Linear> in, out;
  };
  struct Step;

  kernels::Norm make_norm() const;
  void attend(const Layer& layer, bool in_windows, Step& step) const;
  void run_mlp(const Layer& layer, Step& step) const;
  // Writes the tokens' rows in the order of the layout. `joins_first`: the norm is over the joined patches.
  void merge(const Merger& merger, bool joins_first, const TensorView& out, Step& step) const;
  void add_positions(const PatchLayout& layout, const ImageItem& image, const TensorView& x) const;

  const VisionSpec spec_;
  const VisionNames& names_;
  const ModelPlacement placement_;
  std::vector<Linear> patch_embedding_;
  Weight positions_;
  std::vector<Layer> layers_;
  Merger merger_;
  std::vector<Merger> deepstack_;
  LoadedWeights weights_;
};

}  // namespace attend
