#include "attend/model/load_vision_tower.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/model/architectures/architecture.h"
#include "attend/model/weights/quantized/quantized_tensor.h"

namespace attend {
namespace {

const VisionNames& names_of(const ModelSpec& spec) {
  const ModelArchitecture& architecture = find_architecture(spec.architecture, "architecture");
  ensure(architecture.vision != nullptr, spec.architecture, " has no encoder of images");
  return architecture.vision->names;
}

// Slots of the tower; `files`: null: random weights.
std::vector<WeightSlot> named_slots(VisionTower& tower, const CheckpointTensors* files,
                                    const ModelSpec& spec) {
  std::vector<WeightSlot> slots =
      tower.weight_slots(files != nullptr ? vision_prefix(*files, spec).value() : VisionPrefix());
  if (files != nullptr) find_quantized_tensors(slots, spec.quantization, *files);
  return slots;
}

}  // namespace

std::optional<VisionPrefix> vision_prefix(const CheckpointTensors& files, const ModelSpec& spec) {
  if (!spec.vision) return std::nullopt;
  const VisionNames& names = names_of(spec);
  const auto found = std::ranges::find_if(names.prefixes, [&](const VisionPrefix& prefix) {
    return files.contains(std::string(prefix.tower) + std::string(names.patch_embedding) + ".weight");
  });
  return found == names.prefixes.end() ? std::nullopt : std::optional(*found);
}

std::unique_ptr<VisionTower> load_vision_tower(std::shared_ptr<const CheckpointTensors> files,
                                               const ModelSpec& spec, const ModelPlacement& placement) {
  auto tower = std::make_unique<VisionTower>(spec.vision.value(), names_of(spec), placement);
  const std::vector<WeightSlot> slots = named_slots(*tower, files.get(), spec);
  const bool on_gpu = placement.device.type == DeviceType::kCuda;
  if (!files) {
    tower->adopt(make_dummy_weights(slots, on_gpu ? placement.dtype : spec.dtype, placement.device, {}));
  } else if (on_gpu) {
    tower->adopt(upload_weights(slots, spec.quantization, *files, placement.dtype, placement.device, {}));
    files->check_unchanged();
  } else {
    tower->adopt(map_weights(slots, spec.quantization, std::move(files), {}));
  }
  return tower;
}

size_t vision_device_bytes(const CheckpointTensors* files, const ModelSpec& spec,
                           const ModelPlacement& placement) {
  VisionTower tower(spec.vision.value(), names_of(spec), placement);
  return device_bytes(named_slots(tower, files, spec), spec.quantization, placement.dtype);
}

}  // namespace attend
