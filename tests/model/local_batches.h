// A backend without a rule for chunks of its own: its layers that attend in chunks do so over virtual
// batches, as the documents of SGLang say (kernels/metadata/adapters.h).
#pragma once

#include "attend/attention/backend.h"

namespace attend::test {

// On the CPU; pages that divide the chunk.
extern const BackendEntry kLocalBatches;

}  // namespace attend::test
