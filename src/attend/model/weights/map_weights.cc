#include <algorithm>
#include <iterator>

#include "attend/base/error.h"
#include "attend/model/weights/check_finite.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/quantized/quantized_tensor.h"
#include "attend/model/weights/shape_text.h"

namespace attend {
namespace {

Tensor checked_tensor(const WeightSlot& slot, size_t part, const CheckpointTensors& files) {
  const std::string& name = slot.parts[part].name;
  const Tensor tensor = files.tensor(name);
  const TensorView& view = tensor.view();
  const std::vector<int64_t> shape = shape_of(view), expected = slot.stored_shape(part);
  if (shape != expected)
    fail(ErrorCode::kCorruptFile, files.where(name), ": shape ", text_of(shape), ": expected ",
         text_of(expected), " by config.json");
  if (view.dtype != DType::kF32 && view.dtype != DType::kF16 && view.dtype != DType::kBF16)
    fail(ErrorCode::kUnsupported, files.where(name), ": dtype ", view.dtype,
         ": attend has weights in float32, float16, bfloat16, and quantized ones with the scales that "
         "quantization_config of config.json speaks of");
  return tensor;
}

// Throws as map_weights for tensors that do not fit. Returns the bytes of all.
size_t check_stored(std::span<const WeightSlot> slots, const Quantization& quantization,
                    const CheckpointTensors& files) {
  size_t stored_bytes = 0;
  for (const WeightSlot& slot : slots)
    for (size_t part = 0; part < slot.parts.size(); ++part) {
      if (slot.parts[part].storage == WeightStorage::kPlain)
        checked_tensor(slot, part, files);
      else
        check_quantized_tensor(slot, slot.parts[part], quantization, files);
      for (const std::string& name : slot.parts[part].tensor_names())
        stored_bytes += files.tensor(name).view().num_bytes();
    }
  return stored_bytes;
}

// Of a slot's part, whose tensors are kept.
Weight mapped_weight(const WeightSlot& slot, size_t part, const Quantization& quantization,
                     const CheckpointTensors& files, std::vector<Tensor>& tensors) {
  if (slot.parts[part].storage != WeightStorage::kPlain) {
    QuantizedTensor read = read_quantized_tensor(slot, slot.parts[part], quantization, files);
    if (slot.dequantize_on_load) {
      tensors.push_back(dequantize(read.weight));
      return tensors.back();
    }
    std::ranges::move(read.tensors, std::back_inserter(tensors));
    return read.weight;
  }
  const Tensor tensor = checked_tensor(slot, part, files);
  check_finite(tensor, files.where(slot.parts[part].name));
  tensors.push_back(to_slot_layout(slot, tensor));
  const TensorView& view = tensors.back();
  return TensorView::contiguous(view.data, view.dtype, slot.part_shape(part));
}

}  // namespace

void check_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                   const CheckpointTensors& files) {
  check_stored(slots, quantization, files);
  for (const WeightSlot& slot : slots)
    for (size_t part = 0; part < slot.parts.size(); ++part) {
      for (const std::string& name : slot.parts[part].tensor_names()) files.fetch(name, [](size_t) {});
      if (slot.parts[part].storage != WeightStorage::kPlain)
        read_quantized_tensor(slot, slot.parts[part], quantization, files);
      else
        check_finite(checked_tensor(slot, part, files), files.where(slot.parts[part].name));
    }
}

LoadedWeights map_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                          std::shared_ptr<const CheckpointTensors> files, const LoadProgress& progress) {
  const size_t stored_bytes = check_stored(slots, quantization, *files);
  size_t done_bytes = 0;
  LoadedWeights weights;
  for (const WeightSlot& slot : slots) {
    std::vector<Weight> placed;
    for (size_t part = 0; part < slot.parts.size(); ++part) {
      for (const std::string& name : slot.parts[part].tensor_names())
        files->fetch(name, [&](size_t bytes) {
          done_bytes += bytes;
          if (progress) progress(done_bytes, stored_bytes);
        });
      placed.push_back(mapped_weight(slot, part, quantization, *files, weights.tensors));
      weights.count(slot, placed.back().num_bytes());
    }
    slot.place(placed);
  }
  weights.files = std::move(files);
  return weights;
}

}  // namespace attend
