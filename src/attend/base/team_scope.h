// TeamScope: a thread team of the calling thread's own, for threads that always compute at the same time. Any
// other second team would compete with the process's for the same cores.
#pragma once

#include "attend/base/parallel.h"

namespace attend {

// During its lifetime, jobs of the calling thread run on `team`, and num_threads() is the size of `team`.
class TeamScope {
 public:
  explicit TeamScope(ThreadTeam& team);
  ~TeamScope();
  TeamScope(const TeamScope&) = delete;
  TeamScope& operator=(const TeamScope&) = delete;

 private:
  ThreadTeam* outer_;
};

}  // namespace attend
