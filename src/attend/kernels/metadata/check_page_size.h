// Check of the page size, for all page indices.
#pragma once

#include <string_view>

#include "attend/base/error.h"
#include "attend/base/math.h"

namespace attend::kernels {

inline void check_page_size(int page_size, std::string_view caller) {
  require(is_power_of_two(page_size) && page_size <= 256, "page_size ", page_size, ": ", caller,
          " needs a power of two from 1 to 256");
}

}  // namespace attend::kernels
