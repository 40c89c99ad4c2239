// Control of a running engine: pauses, new weights, and memory that is released for a while.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>

#include "attend/base/error.h"
#include "attend/exec/executor_info.h"

#pragma GCC visibility push(default)
namespace attend {

// Treatment of waiting and running requests during a pause.
enum class PauseMode : uint8_t {
  kAbort,    // aborts them
  kRetract,  // frees their K/V, which are computed again after the pause
  kInPlace,  // keeps their K/V
};

struct WeightUpdate {
  std::filesystem::path model_path;
  bool flush_cache = true;  // false: as in Engine::update_weights
  bool abort_requests = false;
};

struct ControlResult {
  std::exception_ptr error;  // null: success
  int num_paused = 0;        // requests that were paused at the time, and continue later
};
// Called once, on the engine's thread, also if the engine is destroyed. It must not throw.
using ControlCallback = std::function<void(const ControlResult&)>;

// Error for a request to an engine with released memory.
class UnavailableError : public Error {
 public:
  explicit UnavailableError(const std::string& message) : Error(ErrorCode::kUnsupported, message) {}
};

}  // namespace attend
#pragma GCC visibility pop
