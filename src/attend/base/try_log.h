// Log lines of code that must not throw: where there is no memory for a line, there is no line.
#pragma once

#include "attend/base/log.h"

namespace attend {

template <class... Parts>
void try_log_info(const Parts&... parts) noexcept {
  try {
    log_info(parts...);
  } catch (...) {
  }
}

template <class... Parts>
void try_log_warning(const Parts&... parts) noexcept {
  try {
    log_warning(parts...);
  } catch (...) {
  }
}

}  // namespace attend
