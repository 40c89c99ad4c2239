// From a resolution to a backend: one backend when both phases chose the same, else a router by phase.
#pragma once

#include <memory>

#include "attend/attention/backend.h"
#include "attend/attention/resolver.h"

#pragma GCC visibility push(default)
namespace attend {

// Bytes of workspace that create_backend will allocate for both phases.
size_t workspace_bytes(const Resolution& resolution, const BackendConfig& config);

// Allocates everything the backend will ever need.
std::unique_ptr<AttentionBackend> create_backend(const Resolution& resolution, const BackendContext& context);

}  // namespace attend
#pragma GCC visibility pop
