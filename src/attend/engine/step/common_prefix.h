// CommonPrefix: finds requests of a decode step that share their first keys.
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
  // Keys are shared only if attending to them once saves at least `min_saved_keys` key reads; 0: never.
  CommonPrefix(const ReqToTokenPool& rows, int page_size, int64_t min_saved_keys)
      : rows_(rows), page_size_(page_size), min_saved_keys_(min_saved_keys) {}

  // Returns the shared prefix of the requests that save the most key reads, and moves them to the front of
  // the step. Rows are compared only if the step's requests differ from the previous step's, because requests
  // that continue decoding keep their slots.
  SharedPrefix arrange(ScheduledStep& step);

 private:
  // Requests of the step that share their first pages.
  struct Choice {
    int num_pages = 0;
    std::vector<int> members;  // indices into the step
    int64_t saved_pages() const { return (std::ssize(members) - 1) * int64_t{num_pages}; }
  };
  Choice choose(std::span<const ScheduledRequest> requests) const;

  const ReqToTokenPool& rows_;
  int page_size_;
  int64_t min_saved_keys_;
  std::vector<RequestId> requests_;  // of the previous step; empty: it was not a decode step
  Choice choice_;                    // for requests_
};

}  // namespace attend
