// Small models of the architectures of GGUF files.
#pragma once

#include <vector>

#include "tests/model/gguf/gguf_model.h"

namespace attend::test {

std::vector<GgufArchitecture> architectures();

}  // namespace attend::test
