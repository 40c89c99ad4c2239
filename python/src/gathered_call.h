// What kernels have no index for, on the CPU: requests whose keys begin in the middle of a page, whose
// queries are fewer than their rows, or whose absorbed keys and values lie in two caches. Their keys are
// copied, one request after another.
#pragma once

#include "attention_call.h"

namespace attend::python {

// Appends, copies and attends for a call that needs_gathering(), in host memory. Throws Error as
// check_on_host(), and for a leftpad or a number of queries that a request does not have.
void run_gathered(const AttentionCall& call, Stream stream);

}  // namespace attend::python
