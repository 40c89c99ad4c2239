#include "attend/base/version.h"

namespace attend {

std::string_view version() { return ATTEND_VERSION; }

}  // namespace attend
