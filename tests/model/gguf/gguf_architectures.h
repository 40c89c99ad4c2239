// Small models of the architectures of GGUF files.
#pragma once

#include <vector>

#include "tests/model/gguf/gguf_model.h"

namespace attend::test {

std::vector<Architecture> architectures();

}  // namespace attend::test
