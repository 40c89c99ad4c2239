// What kernels trust and a caller from Python may get wrong: lengths and page ids. On the CPU they can be
// read, so they are checked before anything is written.
#pragma once

#include <cstdint>

#include "attention_call.h"

namespace attend::python {

// Keys of all requests, those appended included. Throws Error(kInvalidArgument) for a negative length.
int64_t num_kv_tokens_on_host(const AttentionCall& call);

// Throws Error(kInvalidArgument) for sums of lengths that fall or exceed their tensor, for more keys of a
// request than there is room for, and for a page id that the cache does not have, naming the request.
void check_on_host(const AttentionCall& call);

}  // namespace attend::python
