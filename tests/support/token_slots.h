#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "attend/base/ids.h"

namespace attend::testing_support {

inline std::vector<TokenSlot> make_slots(std::initializer_list<int32_t> numbers) {
  return std::vector<TokenSlot>(numbers.begin(), numbers.end());
}

}  // namespace attend::testing_support
