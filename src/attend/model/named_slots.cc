#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/model/loadable_model.h"
#include "attend/model/weights/check_tensors.h"
#include "attend/model/weights/quantized/quantized_tensor.h"

namespace attend {
namespace {

// Returns whether the files have the weight "a.b.weight", with or without quantization.
bool has_weight(const CheckpointTensors& files, std::string stem) {
  stem.resize(stem.size() - std::string_view(".weight").size());
  constexpr std::string_view kEndings[] = {".weight", ".weight_packed", ".qweight"};
  return std::ranges::any_of(
      kEndings, [&](std::string_view ending) { return files.contains(stem + std::string(ending)); });
}

// Sets the names of parts to those in the files. Tools that quantize each expert write one tensor per expert,
// also for models with one tensor for all experts.
void name_parts(std::vector<WeightSlot>& slots, WeightPrefixes prefixes, const CheckpointTensors& files,
                const Device& device) {
  for (WeightSlot& slot : slots)
    for (std::vector<WeightPart>* const parts : {&slot.parts, &slot.parts_per_expert})
      for (WeightPart& part : *parts) part.name = stored_name(part.name, prefixes);
  for (WeightSlot& slot : slots) {
    const auto is_there = [&](const WeightPart& part) {
      return slot.columns > 0 ? has_weight(files, part.name) : files.contains(part.name);
    };
    if (std::ranges::none_of(slot.parts_per_expert, is_there)) continue;
    if (slot.alternates && device.type == DeviceType::kCuda)
      fail(ErrorCode::kUnsupported, files.path().string(), ": tensor \"", slot.parts_per_expert[0].name,
           "\": a GPU requires alternating rows of gate and up in one tensor, \"", slot.parts[0].name, "\"");
    slot.parts = std::move(slot.parts_per_expert);
    slot.layout = StoredLayout::kRows;
  }
}

}  // namespace

std::string head_name(const ModelSpec& spec, const CheckpointTensors& files) {
  const ModelArchitecture& architecture = find_architecture(spec.architecture, "architecture");
  const WeightPrefixes prefixes = find_prefixes(architecture.names, architecture.prefixes, files);
  std::string head = stored_name(std::string(architecture.names.lm_head), prefixes);
  if (has_weight(files, head + ".weight")) return head;
  // Prefixes of the decoder end with a dot, so the name is mapped with its suffix.
  std::string embedding = stored_name(std::string(architecture.names.embedding) + ".weight", prefixes);
  return embedding.substr(0, embedding.size() - std::string_view(".weight").size());
}

namespace {

// Returns whether the files, or dummy weights, have a head. If the files have one, it is used even if the
// config ties embeddings, as in transformers.
bool has_own_head(const ModelSpec& spec, const CheckpointTensors* files, const std::string& head) {
  const bool in_files = files != nullptr && has_weight(*files, head);
  if (!spec.draft) return in_files || !spec.tie_word_embeddings;
  return !spec.draft->shares_vocab && (in_files || spec.draft->head_size > 0);
}

// Reduces the slots of the whole model to those of one rank, and fills them with the places of the rank's
// model. A slot that is as large in the rank's model is not divided.
void fit_rank(std::vector<WeightSlot>& slots, const ModelPlacement& placement, LoadableModel& model) {
  const int num_ranks = placement.num_ranks;
  if (num_ranks == 1) {
    for (WeightSlot& slot : slots) slot = shard(std::move(slot), 0, 1);
    return;
  }
  std::vector<WeightSlot> own = model.weight_slots();
  ensure(own.size() == slots.size(), "a rank has ", own.size(), " of ", slots.size(), " weights");
  bool divides_sum = false;  // the previous weight is divided by in_features
  for (size_t i = 0; i < slots.size(); ++i) {
    WeightSlot& slot = slots[i];
    if (own[i].rows() == slot.rows() && own[i].columns == slot.columns) slot.shard = ShardAxis::kNone;
    slot = shard(std::move(slot), placement.rank, num_ranks);
    ensure(own[i].rows() == slot.rows() && own[i].columns == slot.columns, slot.parts.front().name, ": ",
           slot.rows(), " rows, ", slot.columns, " columns on rank ", placement.rank, " of ", num_ranks,
           ", whose model has ", own[i].rows(), " and ", own[i].columns);
    slot.place = std::move(own[i].place);
    slot.adapted = own[i].adapted;
    if (slot.of_sum && divides_sum && placement.rank > 0) slot.place = [](std::span<const Weight>) {};
    divides_sum = slot.shard == ShardAxis::kInFeatures;
  }
}

}  // namespace

NamedSlots make_named_slots(const ModelSpec& spec, const ModelPlacement& placement,
                            const CheckpointTensors* files) {
  const ModelArchitecture& architecture = find_architecture(spec.architecture, "architecture");
  const WeightPrefixes prefixes =
      files != nullptr ? find_prefixes(architecture.names, architecture.prefixes, *files) : WeightPrefixes();
  const std::string head = stored_name(std::string(architecture.names.lm_head) + ".weight", prefixes);
  ModelSpec opened = spec;
  if (opened.draft && !opened.draft->shares_vocab && files != nullptr)
    opened.draft->own_embedding =
        has_weight(*files, stored_name(std::string(architecture.names.embedding) + ".weight", prefixes));
  const bool own_head = has_own_head(spec, files, head);
  NamedSlots named{.model = make_model(opened, placement, own_head), .slots = {}, .prefixes = prefixes};
  // Slots of the whole model, since their parts have the shapes of the files.
  if (placement.num_ranks > 1)
    named.slots =
        make_model(opened, {.device = placement.device, .dtype = placement.dtype}, own_head)->weight_slots();
  else
    named.slots = named.model->weight_slots();
  if (files != nullptr) name_parts(named.slots, prefixes, *files, placement.device);
  fit_rank(named.slots, placement, *named.model);
  if (files != nullptr) find_quantized_tensors(named.slots, spec.quantization, *files);
  return named;
}

}  // namespace attend
