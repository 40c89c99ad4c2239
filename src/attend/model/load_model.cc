#include <utility>

#include "attend/base/error.h"
#include "attend/model/architectures/architecture.h"
#include "attend/model/check_model_tensors.h"
#include "attend/model/load_vision_tower.h"
#include "attend/model/loadable_model.h"
#include "attend/model/modules/draft_input.h"
#include "attend/model/weights/check_tensors.h"
#include "attend/model/weights/kv_scales.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/quantized/quantized_tensor.h"
#include "attend/tensor/cuda.h"

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

namespace {

// Returns the token of each row of a draft's head from the stored offsets; without files, the first tokens.
// Empty if the files have no offsets and the head has all tokens.
Tensor read_head_tokens(const CheckpointTensors* files, const ModelSpec& spec, std::string_view name) {
  const int64_t size = spec.head_size();
  const bool has_offsets = files != nullptr && !name.empty() && files->contains(name);
  if (!has_offsets && size == spec.vocab_size) return {};
  if (files != nullptr && !has_offsets)
    fail(ErrorCode::kNotFound, files->path().string(), ": weights: no tensor \"", name,
         "\": ", spec.architecture, " with draft_vocab_size ", size,
         " needs the token of each row of its head");
  Tensor tokens = Tensor::zeros({size}, DType::kI32);
  const Tensor offsets = has_offsets ? files->tensor(name) : Tensor();
  if (has_offsets &&
      (offsets.dtype() != DType::kI64 || offsets.view().rank != 1 || offsets.view().shape[0] != size))
    fail(ErrorCode::kCorruptFile, files->where(name), ": ", offsets.view(), ": expected int64[", size, "]");
  for (int64_t i = 0; i < size; ++i) {
    const int64_t offset = has_offsets ? offsets.span<const int64_t>()[static_cast<size_t>(i)] : 0;
    if (offset < -i || offset >= spec.vocab_size - i)
      fail(ErrorCode::kCorruptFile, files->where(name), ": offset ", offset, " of row ", i,
           ": expected a token below vocab_size ", spec.vocab_size);
    tokens.span<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i + offset);
  }
  return tokens;
}

// Returns the prefixes of the tensors that a draft reads from the files of its target, `spec`.
std::vector<std::string> prediction_prefixes(const ModelSpec& spec, const ModelArchitecture& architecture,
                                             const CheckpointTensors& files) {
  const DecoderNames& names = architecture.prediction->names;
  const WeightPrefixes prefixes = find_prefixes(names, architecture.prediction->prefixes, files);
  const int layer = names.layers == architecture.names.layers ? spec.num_layers() : 0;
  std::vector<std::string> read = {
      stored_name(std::string(names.layers) + "." + std::to_string(layer) + ".", prefixes)};
  for (const std::string_view name :
       {names.final_norm, names.draft_projection, names.draft_embedding_norm, names.draft_hidden_norm})
    if (!name.empty() && !name.starts_with('.'))
      read.push_back(stored_name(std::string(name) + ".", prefixes));
  return read;
}

// Checks files against the slots before weights are read.
void check_tensors(std::span<const WeightSlot> slots, WeightPrefixes prefixes, const CheckpointTensors& files,
                   const ModelSpec& spec, const ModelArchitecture& architecture,
                   const ModelPlacement& placement) {
  if (spec.draft) {
    const std::string layer = layer_prefix(0, spec, architecture.names);
    return check_draft_tensors(slots, files, spec, stored_name(layer, prefixes));
  }
  UnusedTensorRules rules{.layers = stored_name(std::string(architecture.names.layers) + ".", prefixes),
                          .predicts_more_tokens = architecture.predicts_more_tokens};
  if (const auto prefix = vision_prefix(files, spec)) rules.encoders = {prefix->tower, prefix->merger};
  if (placement.has_prediction) rules.read_elsewhere = prediction_prefixes(spec, architecture, files);
  check_unused_tensors(slots, files, spec, rules);
}

// Returns the slots of a model on one rank, after a check that the files have the tensors of all slots, and
// no others; nullptr: no files.
NamedSlots make_checked_slots(const CheckpointTensors* files, const ModelSpec& spec,
                              const ModelPlacement& placement) {
  if (placement.device.type == DeviceType::kCuda) require_gpu_weights(spec.quantization);
  NamedSlots named = make_named_slots(spec, placement, files);
  const ModelArchitecture& architecture = find_architecture(spec.architecture, "architecture");
  if (files != nullptr && placement.num_ranks == 1)
    check_tensors(named.slots, named.prefixes, *files, spec, architecture, placement);
  // A rank may use only some of the tensors.
  if (files != nullptr && placement.num_ranks > 1 && placement.rank == 0) {
    const NamedSlots whole =
        make_named_slots(spec, {.device = placement.device, .dtype = placement.dtype}, files);
    check_tensors(whole.slots, named.prefixes, *files, spec, architecture, placement);
  }
  return named;
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
  auto [model, slots, prefixes] = make_checked_slots(files.get(), spec, placement);
  const ModelArchitecture& architecture = find_architecture(spec.architecture, "architecture");
  if (spec.draft) {
    const Tensor tokens = read_head_tokens(files.get(), spec, architecture.names.draft_tokens);
    const bool on_gpu = placement.device.type == DeviceType::kCuda && !tokens.view().empty();
    model->set_head_tokens(on_gpu ? cuda::copy_to(tokens, placement.device) : tokens);
  }
  if (!files) quantize_dummy_tensors(slots, spec.quantization);
  const DType dummy_dtype = placement.device.type == DeviceType::kCuda ? placement.dtype : spec.dtype;
  model->adopt(files ? load_weights(slots, spec.quantization, std::move(files), progress, placement)
                     : make_dummy_weights(slots, dummy_dtype, placement.device, progress, spec.quantization));
  model->set_adapter_layers(AdapterLayers(slots, architecture, prefixes, placement));
  return std::move(model);
}

void check_model_tensors(const CheckpointTensors& files, const ModelSpec& spec,
                         const ModelPlacement& placement) {
  check_weights(make_checked_slots(&files, spec, placement).slots, spec.quantization, files);
}

std::vector<KvScales> read_kv_scales(const CheckpointTensors& files, const ModelSpec& spec) {
  const ModelArchitecture& architecture = find_architecture(spec.architecture, "architecture");
  return find_kv_scales(files, spec, architecture.names,
                        find_prefixes(architecture.names, architecture.prefixes, files));
}

}  // namespace attend
