#include <algorithm>
#include <string>

#include "attend/base/error.h"
#include "attend/model/architectures/architecture.h"
#include "attend/model/config/draft_spec.h"

namespace attend {
namespace {

std::string text_of(const std::vector<int>& layers) {
  std::string text;
  for (const int layer : layers) text += (text.empty() ? "[" : ", ") + std::to_string(layer);
  return text + "]";
}

// Returns whether ids are outputs of layers, so that the next layer reads that stream.
bool are_outputs(AuxIds kind, const std::vector<int>& ids, int num_layers) {
  switch (kind) {
    case AuxIds::kOutputs:
      return true;
    case AuxIds::kInputsUpToLast:
      return ids.back() != num_layers;
    case AuxIds::kOutputsFromFirst:
      return ids.front() == 1;
  }
  return true;
}

std::vector<int> layers_before(const ModelSpec& draft, const ModelSpec& target) {
  const int num_layers = target.num_layers();
  std::vector<int> layers = draft.draft->aux_layer_ids;
  if (layers.empty())
    layers = {2, num_layers / 2, num_layers - 3};
  else if (are_outputs(find_architecture(target.architecture, "architecture").aux_ids, layers, num_layers))
    for (int& layer : layers) ++layer;
  const bool ascending = std::ranges::adjacent_find(layers, std::greater_equal<>()) == layers.end();
  require(ascending && layers.front() >= 0 && layers.back() <= num_layers, draft.architecture,
          " reads hidden states before layers ", text_of(layers), " (eagle_aux_hidden_state_layer_ids ",
          draft.draft->aux_layer_ids.empty() ? "absent" : text_of(draft.draft->aux_layer_ids),
          "): expected ascending layers up to ", num_layers, ", those of ", target.architecture);
  return layers;
}

}  // namespace

ModelSpec fit_draft(ModelSpec draft, const ModelSpec& target) {
  require(draft.draft.has_value(), draft.architecture, ": expected a draft head");
  DraftSpec& spec = *draft.draft;
  require(draft.vocab_size == target.vocab_size, "vocab_size ", draft.vocab_size, " of ", draft.architecture,
          ": expected ", target.vocab_size, ", that of ", target.architecture);
  require(spec.target_hidden_size == target.hidden_size, "hidden states of ", spec.target_hidden_size,
          " features (target_hidden_size or hidden_size) of ", draft.architecture, ": expected ",
          target.hidden_size, ", the hidden_size of ", target.architecture);
  if (spec.reads_stream) spec.before_layers = layers_before(draft, target);
  draft.max_position_embeddings = std::max(draft.max_position_embeddings, target.max_context_len());
  return draft;
}

}  // namespace attend
