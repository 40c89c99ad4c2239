// Bars on a terminal that show how far something is; nothing elsewhere.
#pragma once

#include <string>
#include <string_view>

#include "attend/engine/engine_config.h"

namespace attend::cli {

// What an engine tells while it is made, as one bar after another. They are gone with the object.
class EngineBars {
 public:
  EngineBars();
  ~EngineBars();
  EngineBars(const EngineBars&) = delete;
  EngineBars& operator=(const EngineBars&) = delete;

  // Refers to this object.
  EngineProgress progress();

 private:
  void show(std::string_view label, double share, const std::string& note);

  bool on_terminal_;
  std::string shown_;
};

}  // namespace attend::cli
