// Architectures that attend does not support, and the parts that they need.
#pragma once

#include <span>
#include <string_view>

namespace attend {

struct UnsupportedArchitecture {
  std::string_view name;     // without its last part: "JambaFor" for JambaForCausalLM
  std::string_view missing;  // after "needs": "Mamba-1 layers"
};

// Sorted by name.
std::span<const UnsupportedArchitecture> unsupported_architectures();

// Returns the part that the architecture needs; empty: unknown.
std::string_view find_missing_part(std::string_view architecture);

}  // namespace attend
