// A backend without native support for chunked attention: its chunked layers run over virtual batches, as
// documented by SGLang (kernels/metadata/adapters.h).
#pragma once

#include "attend/attention/backend.h"

namespace attend::test {

// Runs on the CPU. The page size must divide the chunk.
extern const BackendEntry kLocalBatches;

}  // namespace attend::test
