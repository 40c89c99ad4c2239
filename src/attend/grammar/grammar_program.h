// The grammar program: compiles grammars and computes token masks in processes of its own
// (worker/messages.h).
#pragma once

#include <sys/types.h>

namespace attend {

class GrammarProgram {
 public:
  // Starts the program, which is part of this library. Throws Error(kUnsupported) if the system does not
  // start it.
  GrammarProgram();
  // Ends the program and all processes of grammars.
  ~GrammarProgram();
  GrammarProgram(const GrammarProgram&) = delete;
  GrammarProgram& operator=(const GrammarProgram&) = delete;

  int socket() const { return socket_; }  // of the launcher

 private:
  int socket_ = -1;
  pid_t pid_ = 0;
};

}  // namespace attend
