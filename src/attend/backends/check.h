// Checks of a step on the host, before kernels rely on its values.
#pragma once

#include "attend/attention/backend.h"

namespace attend {

// Throws Error(kInvalidArgument) if a layer's heads differ from the pool's, and Error(kUnsupported) for an
// expanded MLA layer.
void check_layer(const AttentionLayer& layer, const KvPool& pool);

// Throws Error(kInvalidArgument) for a batch beyond config.limits, for arrays with other sizes than its
// counts and, on the CPU, for lengths beyond the context, and request rows and slots that do not exist.
void check_batch(const ForwardBatch& batch, const BackendConfig& config, const TensorView& request_table,
                 const KvPool& pool);

}  // namespace attend
