// Attention backends that SGLang knows by a name and attend does not have.
#pragma once

#include <span>
#include <string_view>

namespace attend {

struct UnsupportedBackend {
  std::string_view name;
  std::string_view why;  // attend does not have it, and what to ask for instead
};

// Every name of SGLang's registry that is no backend and no alias of attend's table.
std::span<const UnsupportedBackend> unsupported_backends();
// Null: no name of SGLang's either.
const UnsupportedBackend* find_unsupported_backend(std::string_view name);

}  // namespace attend
