// WeightInventory: how a model's weights are stored and what they will take, known before they are read.
#pragma once

#include <vector>

#include "attend/model/config/quantization.h"
#include "attend/model/loadable_model.h"

namespace attend {

class WeightInventory {
 public:
  // Counts the weights of `checkpoint`, which outlives this; null: dummy weights. For a model whose config
  // has quantized weights it opens the tensors, whose entries decide which are: throws as open_tensors()
  // does, and as quantize_dummy_tensors() does.
  explicit WeightInventory(const ModelSpec& spec, const Checkpoint* checkpoint = nullptr);

  // Bytes that they take on a GPU where plain ones are `dtype`, at most. Throws Error(kNotFound) for files of
  // quantized weights that are not there.
  size_t device_bytes(DType dtype) const;
  // Bytes that are copied on the CPU, since the files have them in another order, at most; the others are
  // mapped. Without files all count as plain.
  size_t copied_bytes() const;
  // stored_formats() of a model whose config.json speaks of quantized weights; of others, and where the
  // directory has no files, nothing.
  const std::vector<StoredFormat>& formats() const { return formats_; }

 private:
  bool is_quantized() const { return quantization_.storage != WeightStorage::kPlain; }

  const Checkpoint* checkpoint_;
  Quantization quantization_;
  DType dtype_;
  NamedSlots named_;
  bool has_files_ = false;  // that were opened
  std::vector<StoredFormat> formats_;
};

}  // namespace attend
