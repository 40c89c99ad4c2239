#include "attend/engine/output/request_output.h"

namespace attend {

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kError:
      return "error";
    case FinishReason::kAbort:
      return "abort";
  }
  return "";
}

}  // namespace attend
