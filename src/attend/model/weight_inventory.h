// WeightInventory: stored formats and memory sizes of a model's weights, before they are loaded.
#pragma once

#include <vector>

#include "attend/model/config/quantization.h"
#include "attend/model/loadable_model.h"

namespace attend {

class WeightInventory {
 public:
  // Counts the weights of `checkpoint`, which must outlive this object; nullptr: dummy weights. If the config
  // has quantized weights, opens the tensors to determine which weights are quantized, and on several ranks
  // checks them. Throws as open_tensors(), quantize_dummy_tensors() and check_weights() do. `placement`:
  // rank.
  explicit WeightInventory(const ModelSpec& spec, const Checkpoint* checkpoint = nullptr,
                           const ModelPlacement& placement = {});

  // Upper bound of the bytes on a GPU, with weights that are not quantized as `dtype`. Throws
  // Error(kNotFound) if weights are quantized and files are missing.
  size_t device_bytes(DType dtype) const;
  // Upper bound of the bytes that are copied on the CPU, since kernels require another layout; others are
  // mapped. Without files, weights count as not quantized.
  size_t copied_bytes() const;
  // stored_formats() of a model with quantization_config. Empty for other models and without files.
  const std::vector<StoredFormat>& formats() const { return formats_; }

 private:
  bool is_quantized() const { return quantization_.storage != WeightStorage::kPlain; }

  const Checkpoint* checkpoint_;
  Quantization quantization_;
  DType dtype_;
  NamedSlots named_;
  bool has_files_ = false;  // whether the files were opened
  std::vector<StoredFormat> formats_;
};

}  // namespace attend
