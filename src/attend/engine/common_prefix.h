// CommonPrefix: of a decode step, how many keys all of its requests share.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/engine/scheduler.h"
#include "attend/kv/req_to_token_pool.h"

namespace attend {

class CommonPrefix {
 public:
  // Shared keys count where attending to them once saves `min_saved_keys` reads of a key or more; 0: never.
  CommonPrefix(const ReqToTokenPool& rows, int page_size, int64_t min_saved_keys)
      : rows_(rows), page_size_(page_size), min_saved_keys_(min_saved_keys) {}

  // Of whole pages, fewer than any request has; 0: none, or too few to count. Rows are compared where the
  // step has other requests than the one before: those that go on decoding keep their slots.
  int num_keys(const ScheduledStep& step);

 private:
  int compare_rows(const ScheduledStep& step) const;

  const ReqToTokenPool& rows_;
  int page_size_;
  int64_t min_saved_keys_;
  std::vector<RequestId> requests_;  // of the step before; empty: it was no decode step
  int num_keys_ = 0;                 // that they share
};

}  // namespace attend
