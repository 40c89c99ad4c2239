// The support matrix: what the capability records and preference lists say, as a page of Markdown.
#pragma once

#include <span>
#include <string>

#include "attend/attention/backend.h"

namespace attend::cli {

// docs/support-matrix.md is this of backend_table(); a test holds it to that.
std::string support_matrix(std::span<const BackendEntry> table);

}  // namespace attend::cli
