// Drafter: guesses what a request's next tokens are, for the model to verify in one step.
#pragma once

#include "attend/engine/request.h"

namespace attend {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Writes at most `most` tokens that may come next to request.draft.tokens; none where it has no guess.
  virtual void propose(Request& request, int most) = 0;
};

// What the scheduler is told of it.
struct DrafterCapabilities {
  Drafter* drafter = nullptr;  // null: nothing is drafted
  int max_tokens = 0;          // of a draft
  int max_reqs = 0;            // steps with more requests that generate draft nothing
};

}  // namespace attend
