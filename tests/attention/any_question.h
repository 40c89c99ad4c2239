// Random tables, models, machines and options, for properties of the resolver.
#pragma once

#include <string>
#include <vector>

#include "attend/attention/resolver.h"

namespace attend::test {

// Numbers [0, end), as likely in the first case as in the last.
int number_below(int end);
// True once in eight.
bool sometimes();

// Few limits each, so that resolutions succeed often. Some rows have an alias.
std::vector<BackendEntry> any_table();
Requirement any_requirement();
Hardware any_hardware();
// Names, aliases and page sizes that the table has; often none.
BackendOptions any_options(const std::vector<BackendEntry>& table);

}  // namespace attend::test
