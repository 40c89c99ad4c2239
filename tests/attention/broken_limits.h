// Independent implementation of capability checks, written from capability.h only.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "attend/attention/resolver.h"

namespace attend::test {

// Limits of `entry` that a requirement exceeds, in the words that start a reason: "sliding window",
// "page_size 16", "hopper". Empty: the backend can serve. `is_requested_by_name` as in rejection_reasons().
std::set<std::string> broken_limits(const BackendEntry& entry, Phase phase, const Requirement& needs,
                                    const Hardware& hardware, std::optional<int> page_size,
                                    bool is_requested_by_name);

// Limits that the reasons name, in the same words. Throws if a reason does not name the backend and the
// phase, or if two reasons name the same limit.
std::set<std::string> limits_named(const std::vector<std::string>& reasons, std::string_view backend,
                                   Phase phase);

}  // namespace attend::test
