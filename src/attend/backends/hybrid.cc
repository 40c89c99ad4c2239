#include "attend/backends/hybrid.h"

namespace attend {

void HybridBackend::plan(const ForwardBatch& batch, Stream& stream) {
  backend_for(batch).plan(batch, stream);
}

KvDestination HybridBackend::destination(const AttentionLayer& layer, const ForwardBatch& batch) {
  return backend_for(batch).destination(layer, batch);
}

void HybridBackend::forward(const AttentionLayer& layer, const AttentionInput& input,
                            const ForwardBatch& batch, Stream& stream) {
  backend_for(batch).forward(layer, input, batch, stream);
}

}  // namespace attend
