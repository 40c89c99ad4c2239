#include "attend/backends/hybrid.h"
#include "attend/backends/table.h"

namespace attend {

size_t workspace_bytes(const Resolution& resolution, const BackendConfig& config) {
  const size_t prefill = resolution.prefill->workspace_bytes(config);
  if (resolution.prefill == resolution.decode) return prefill;
  return prefill + resolution.decode->workspace_bytes(config);
}

std::unique_ptr<AttentionBackend> create_backend(const Resolution& resolution,
                                                 const BackendContext& context) {
  auto prefill = resolution.prefill->create(context);
  if (resolution.prefill == resolution.decode) return prefill;
  return std::make_unique<HybridBackend>(std::move(prefill), resolution.decode->create(context),
                                         context.config.verify_phase);
}

}  // namespace attend
