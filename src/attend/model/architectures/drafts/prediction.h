// Layers for multi-token prediction: drafts in the files of their target.
#pragma once

#include "attend/model/architectures/architecture.h"

namespace attend {

// ModelArchitecture::read_draft of these layers: reduces the model to one layer like its last ones, with full
// attention. Rejects num_nextn_predict_layers 0. Its input is W (norm(e) ++ norm(h)) with the target's hidden
// state h after the final norm, and it returns its own state after its final norm.
void read_prediction(const JsonNode& json, ModelSpec& spec);

}  // namespace attend
