// CommonPrefix: which requests of a decode step share their first keys, and how many.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/engine/schedule/scheduler.h"
#include "attend/exec/executor_batch.h"
#include "attend/kv/req_to_token_pool.h"

namespace attend {

class CommonPrefix {
 public:
  // Shared keys count where attending to them once saves `min_saved_keys` reads of a key or more; 0: never.
  CommonPrefix(const ReqToTokenPool& rows, int page_size, int64_t min_saved_keys)
      : rows_(rows), page_size_(page_size), min_saved_keys_(min_saved_keys) {}

  // Of the requests that save the most; they come first in the step then. Rows are compared where the step
  // has other requests than the one before: those that go on decoding keep their slots.
  SharedPrefix arrange(ScheduledStep& step);

 private:
  // What one choice of requests saves, and whether each request of the step is among them.
  struct Choice {
    int num_pages = 0;
    std::vector<int> members;  // indices into the step
    int64_t saved_pages() const { return (std::ssize(members) - 1) * int64_t{num_pages}; }
  };
  Choice choose(std::span<const ScheduledRequest> requests) const;

  const ReqToTokenPool& rows_;
  int page_size_;
  int64_t min_saved_keys_;
  std::vector<RequestId> requests_;  // of the step before; empty: it was no decode step
  Choice choice_;                    // among them
};

}  // namespace attend
