// Attention backends of SGLang that attend does not have.
#pragma once

#include <span>
#include <string_view>

namespace attend {

struct UnsupportedBackend {
  std::string_view name;
  std::string_view why;  // reason, and the backend to use instead
};

// Returns every name of SGLang's registry that is neither a backend nor an alias of attend's table.
std::span<const UnsupportedBackend> unsupported_backends();
// Returns null if SGLang does not have the name either.
const UnsupportedBackend* find_unsupported_backend(std::string_view name);

}  // namespace attend
