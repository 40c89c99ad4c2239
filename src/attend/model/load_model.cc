#include <utility>

#include "attend/base/error.h"
#include "attend/model/architectures/architecture.h"
#include "attend/model/loadable_model.h"
#include "attend/model/weights/check_tensors.h"
#include "attend/model/weights/kv_scales.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/quantized/quantized_tensor.h"

namespace attend {
namespace {

LoadedWeights load_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                           std::shared_ptr<const CheckpointTensors> files, const LoadProgress& progress,
                           const ModelPlacement& placement) {
  if (placement.device.type == DeviceType::kCpu) {
    LoadedWeights weights = map_weights(slots, quantization, std::move(files), progress);
    // Files may have changed between the reads of the first and the last one.
    weights.files->check_unchanged();
    return weights;
  }
  LoadedWeights weights =
      upload_weights(slots, quantization, *files, placement.dtype, placement.device, progress);
  files->check_unchanged();
  return weights;
}

}  // namespace

double activation_bytes(const ModelSpec& spec, const BatchLimits& limits, const ModelPlacement& placement) {
  return make_model(spec, placement, !spec.tie_word_embeddings)->prepared_bytes(limits);
}

std::unique_ptr<Model> load_model(const std::filesystem::path& directory, const ModelSpec& spec,
                                  LoadFormat format, const LoadProgress& progress,
                                  const ModelPlacement& placement) {
  return load_model(format == LoadFormat::kDummy ? nullptr : open_checkpoint(directory)->open_tensors(), spec,
                    progress, placement);
}

std::unique_ptr<Model> load_model(std::shared_ptr<const CheckpointTensors> files, const ModelSpec& spec,
                                  const LoadProgress& progress, const ModelPlacement& placement) {
  if (placement.device.type == DeviceType::kCuda) require_gpu_weights(spec.quantization);
  auto [model, slots, prefixes] = make_named_slots(spec, placement, files.get());
  if (files) {
    const ModelArchitecture& architecture = find_architecture(spec.architecture, "architecture");
    check_unused_tensors(slots, *files, spec,
                         stored_name(std::string(architecture.names.layers) + ".", prefixes),
                         architecture.predicts_more_tokens);
  }
  if (!files) quantize_dummy_tensors(slots, spec.quantization);
  const DType dummy_dtype = placement.device.type == DeviceType::kCuda ? placement.dtype : spec.dtype;
  model->adopt(files ? load_weights(slots, spec.quantization, std::move(files), progress, placement)
                     : make_dummy_weights(slots, dummy_dtype, placement.device, progress, spec.quantization));
  return std::move(model);
}

std::vector<KvScales> read_kv_scales(const CheckpointTensors& files, const ModelSpec& spec) {
  const ModelArchitecture& architecture = find_architecture(spec.architecture, "architecture");
  return find_kv_scales(files, spec, architecture.names,
                        find_prefixes(architecture.names, architecture.prefixes, files));
}

}  // namespace attend
