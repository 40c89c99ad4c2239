// A second opinion on who can serve what, written from capability.h alone.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "attend/attention/resolver.h"

namespace attend::test {

// Every limit of `entry` that a requirement breaks, in the words with which a reason begins: "sliding
// window", "page_size 16", "hopper". Empty: it can serve. `is_requested_by_name` as in reasons_against().
std::set<std::string> broken_limits(const BackendEntry& entry, Phase phase, const Requirement& needs,
                                    const Hardware& hardware, std::optional<int> page_size,
                                    bool is_requested_by_name);

// The limits that reasons speak of, in the same words. Throws when a reason does not name the backend and the
// phase, or two name the same limit.
std::set<std::string> limits_named(const std::vector<std::string>& reasons, std::string_view backend,
                                   Phase phase);

}  // namespace attend::test
