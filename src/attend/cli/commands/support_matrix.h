// Support matrix: the capability records and preference lists as a page of Markdown.
#pragma once

#include <span>
#include <string>

#include "attend/attention/backend.h"

namespace attend::cli {

// Returns docs/support-matrix.md if `table` is backend_table(); a test compares the two.
std::string support_matrix(std::span<const BackendEntry> table);

}  // namespace attend::cli
