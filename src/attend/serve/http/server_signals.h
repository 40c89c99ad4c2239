// ServerSignals: SIGTERM and SIGINT of a server, while it loads, serves and shuts down.
#pragma once

#include <string>

namespace attend::serve {

// Installs signal handlers for its lifetime; one instance at a time. SIGPIPE is ignored, so that writing to a
// closed connection or log is an error of that write.
// - Before serve(), a signal ends the process immediately.
// - After serve(), the first signal makes descriptor() readable. A second one does this too, and ends the
//   process after a second if it is still running then. A third one ends the process immediately.
class ServerSignals {
 public:
  ServerSignals();
  ~ServerSignals();
  ServerSignals(const ServerSignals&) = delete;
  ServerSignals& operator=(const ServerSignals&) = delete;

  // Sets the socket file that is removed if a signal ends the process; empty: none. A file by which another
  // server has replaced it is kept.
  void set_socket_file(const std::string& path);
  void serve();

  // An eventfd. It is readable if signals have arrived that take() has not returned.
  int descriptor() const;
  // Returns the number of signals since the last call.
  int take();
};

}  // namespace attend::serve
