#include "attend/serve/http/drain.h"

#include "attend/base/log.h"

namespace attend::serve {

void Drain::on_signal() {
  if (started_) return server_.stop();
  started_ = true;
  deadline_ = Clock::now() + timeout_;
  service_.drain();
  try_log_info("shutting down: ", service_.num_active(),
               " active requests may finish; a second signal aborts them");
  wait();
}

void Drain::wait() noexcept try {
  constexpr std::chrono::milliseconds kPoll{20}, kLastWords{200};
  if (service_.num_active() > 0 && Clock::now() < deadline_) return server_.after(kPoll, [this] { wait(); });
  if (service_.num_active() > 0)
    try_log_warning(service_.num_active(), " requests did not finish in time and are aborted");
  service_.abort_all();
  server_.stop_accepting();
  server_.after(kLastWords, [this] { server_.stop(); });
} catch (const std::exception&) {  // out of memory: stop immediately
  server_.stop();
}

}  // namespace attend::serve
