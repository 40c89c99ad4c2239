// The part of a model that each of several ranks computes.
#pragma once

#include "attend/model/config/model_spec.h"

namespace attend {

// Returns the model of one rank: its heads of attention, and its share of the features between the two
// projections of an MLP or an expert. Sums over these features are completed by an all-reduce. If there are
// fewer heads of K and V than ranks, several ranks have the same head. Recurrent mixers, norms, routers and
// tables are whole on every rank. Throws Error(kUnsupported) with the numbers of ranks that are possible if
// `num_ranks` cannot divide the model.
ModelSpec rank_spec(const ModelSpec& whole, int num_ranks);

}  // namespace attend
