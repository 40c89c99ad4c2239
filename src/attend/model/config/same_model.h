// Compares the computations that two config.json describe.
#pragma once

#include <string>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/model_spec.h"

namespace attend {

// Returns whether two models compute the same function of their weights, so that the weights of one may
// replace those of the other. Ids of special tokens and the dtype of weights may differ.
bool is_same_model(const ModelSpec& a, const ModelSpec& b);

// Returns the first field that both config.json have, with different values that may be the reason why the
// models differ: "rope_theta 10000.0 instead of 500000.0". Empty: there is none.
std::string find_different_field(const Checkpoint& checkpoint, const std::string& running_config);

}  // namespace attend
