// Random tables, models, machines and options for property tests of the resolver.
#pragma once

#include <string>
#include <vector>

#include "attend/attention/resolver.h"

namespace attend::test {

// Uniform in [0, end), independent of RapidCheck's size.
int uniform_below(int end);
// Returns true with probability 1/8.
bool sometimes();

// Few limits each, so that resolutions often succeed. Some rows have an alias.
std::vector<BackendEntry> any_table();
Requirement any_requirement();
Hardware any_hardware();
// Names, aliases and page sizes of the table; often none.
BackendOptions any_options(const std::vector<BackendEntry>& table);

}  // namespace attend::test
