// Bars on a terminal that show how far something is; nothing elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "attend/engine/engine_config.h"

namespace attend::cli {

// What an engine tells while it is made and while it reads prompts, as one bar after another. They are gone
// with the object.
class EngineBars {
 public:
  EngineBars();
  ~EngineBars();
  EngineBars(const EngineBars&) = delete;
  EngineBars& operator=(const EngineBars&) = delete;

  // Refers to this object.
  EngineProgress progress();
  // How much of the prompts is computed.
  void show_prompts(int64_t num_done, int64_t num_tokens);
  // How many requests are answered.
  void show_requests(int num_done, int num_requests);
  // Takes the bar away, for what is printed instead.
  void clear();

 private:
  void show(std::string_view label, double share, const std::string& note);

  bool has_bars_;
  std::string shown_;
};

}  // namespace attend::cli
