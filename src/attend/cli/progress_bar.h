// Progress bars on a terminal. They show nothing if stderr is not a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "attend/engine/engine_config.h"

namespace attend::cli {

// Shows an engine's progress while it starts and reads prompts, one bar after another. The destructor erases
// them.
class EngineBars {
 public:
  EngineBars();
  ~EngineBars();
  EngineBars(const EngineBars&) = delete;
  EngineBars& operator=(const EngineBars&) = delete;

  // The result refers to this object.
  EngineProgress progress();
  // Shows the fraction of prompts that is computed.
  void show_prompts(int64_t num_done, int64_t num_tokens);
  // Shows the number of finished requests.
  void show_requests(int num_done, int num_requests);
  // Erases the bar before other output.
  void clear();

 private:
  void show(std::string_view label, double share, const std::string& note);

  bool has_bars_;
  std::string shown_;
};

}  // namespace attend::cli
