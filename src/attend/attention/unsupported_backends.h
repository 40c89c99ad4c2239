// Attention backends that SGLang knows by a name and attend does not have.
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
// Null: no name of SGLang's either.
const UnsupportedBackend* find_unsupported_backend(std::string_view name);

}  // namespace attend
