// The table of backends, an explicit list of rows, and from a resolution to a backend: one where both phases
// chose the same, else a router by phase.
#pragma once

#include <memory>
#include <span>

#include "attend/attention/backend.h"
#include "attend/attention/resolver.h"

#pragma GCC visibility push(default)
namespace attend {

// Every backend of this build. Static data.
std::span<const BackendEntry> backend_table();

// Bytes of workspace that create_backend will allocate for both phases.
size_t workspace_bytes(const Resolution& resolution, const BackendConfig& config);

// Allocates everything the backend will ever need.
std::unique_ptr<AttentionBackend> create_backend(const Resolution& resolution, const BackendContext& context);

}  // namespace attend
#pragma GCC visibility pop
