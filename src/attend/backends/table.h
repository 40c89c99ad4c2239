// The table of backends: an explicit list of rows.
#pragma once

#include <span>

#include "attend/attention/backend.h"

namespace attend {

// Every backend of this build. Static data.
std::span<const BackendEntry> backend_table();

}  // namespace attend
