// Functions that the records of the Gemma models share.
#pragma once

#include "attend/model/architectures/architecture.h"

namespace attend {

// Returns sqrt(hidden_size), the factor of embedding rows, rounded to the dtype of the weights as in
// training.
float gemma_embedding_scale(int hidden_size, DType dtype);

// Returns 0, no cap, if the field is null.
float read_logit_cap(const JsonNode& json, const char* key, float missing);

}  // namespace attend
