// What --version prints.
#pragma once

#include <string>

namespace attend::cli {

// The version, the commit, and the devices that there are.
std::string version_text();

}  // namespace attend::cli
