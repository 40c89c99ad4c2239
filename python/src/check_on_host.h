// What kernels trust and a caller from Python may get wrong: lengths and page ids. On the CPU they can be
// read, so they are checked before anything is written.
#pragma once

#include <cstdint>
#include <string_view>

#include "attention_call.h"

namespace attend::python {

// The length of request r, in host memory.
int32_t length_on_host(const kernels::Lengths& lengths, int32_t r);

// Throws Error(kInvalidArgument) for sums of lengths that do not rise from 0 to at most `num_tokens`, and for
// a request with more queries than max_seqlen_q, naming the request.
void check_queries_on_host(std::string_view cu_seqlens_name, const kernels::BatchSource& source,
                           int64_t num_tokens, int max_seqlen_q);
// Likewise for keys to append.
void check_appended_on_host(const kernels::BatchSource& source, int max_seqlen_k_new);

// Keys of all requests, those appended included. Throws Error(kInvalidArgument) for a negative length.
int64_t num_kv_tokens_on_host(const AttentionCall& call);

// Throws Error(kInvalidArgument) for sums of lengths that fall or exceed their tensor, for more queries of a
// request than max_seqlen_q, for more keys than there is room for, for a leftpad above the number of keys,
// and for a page id that the cache does not have, naming the request.
void check_on_host(const AttentionCall& call);

}  // namespace attend::python
