#include "attend/model/weight_inventory.h"

#include "attend/model/weights/join_parts.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/quantized/quantized_tensor.h"
#include "attend/model/weights/stored_formats.h"

namespace attend {

WeightInventory::WeightInventory(const ModelSpec& spec, const Checkpoint* checkpoint,
                                 const ModelPlacement& placement)
    : checkpoint_(checkpoint), quantization_(spec.quantization), dtype_(spec.dtype) {
  std::shared_ptr<const CheckpointTensors> files;
  // The files of a draft may have a table and a head.
  const bool reads_names = is_quantized() || spec.draft.has_value();
  if (reads_names && checkpoint != nullptr && checkpoint->has_tensors()) files = checkpoint->open_tensors();
  has_files_ = files != nullptr;
  named_ = make_named_slots(spec, {.rank = placement.rank, .num_ranks = placement.num_ranks}, files.get());
  // Shards may split a packed word or a group.
  if (has_files_ && placement.num_ranks > 1) check_weights(named_.slots, quantization_, *files);
  if (checkpoint == nullptr) quantize_dummy_tensors(named_.slots, quantization_);
  if (is_quantized() && (checkpoint == nullptr || has_files_))
    formats_ = stored_formats(named_.slots, quantization_, files.get(), dtype_);
}

size_t WeightInventory::device_bytes(DType dtype) const {
  if (is_quantized() && checkpoint_ != nullptr && !has_files_) checkpoint_->open_tensors();  // throws
  return attend::device_bytes(named_.slots, quantization_, dtype);
}

size_t WeightInventory::copied_bytes() const {
  size_t bytes = 0;
  for (const WeightSlot& slot : named_.slots)
    for (size_t i = 0; i < slot.parts.size(); ++i) {
      const WeightPart& part = slot.parts[i];
      const bool plain = part.storage == WeightStorage::kPlain || !has_files_;
      const auto num_elements = static_cast<size_t>(slot.part_elements(i));
      if (!plain && slot.dequantize_on_load)
        bytes += num_elements * sizeof(float);
      else if (plain && is_repacked(slot))
        bytes += num_elements * size_of(dtype_);
      else if (!plain && copies_quantized_values(slot, part, quantization_))
        bytes += attend::device_bytes(slot, part, quantization_);
    }
  return bytes;
}

}  // namespace attend
