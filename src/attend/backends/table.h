// The table of backends: an explicit list of rows.
#pragma once

#include <span>

#include "attend/attention/backend.h"

#pragma GCC visibility push(default)
namespace attend {

// Every backend of this build. Static data.
std::span<const BackendEntry> backend_table();

}  // namespace attend
#pragma GCC visibility pop
