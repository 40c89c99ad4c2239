// Checks lengths and page ids of calls from Python, which kernels do not check. They are readable on the CPU,
// so they are checked there before anything is written.
#pragma once

#include <cstdint>
#include <string_view>

#include "attention/attention_call.h"

namespace attend::python {

// Returns the length of request r, in host memory.
int32_t length_on_host(const kernels::Lengths& lengths, int32_t r);

// Throws Error(kInvalidArgument) that names the request for cumulative lengths that do not increase from 0 to
// at most `num_tokens`, and for a request with more queries than max_seqlen_q.
void check_queries_on_host(std::string_view cu_seqlens_name, const kernels::BatchSource& source,
                           int64_t num_tokens, int max_seqlen_q);
// Like check_queries_on_host(), for keys to append.
void check_appended_on_host(const kernels::BatchSource& source, int max_seqlen_k_new);

// Returns the number of keys of all requests, including appended ones. Throws Error(kInvalidArgument) for a
// negative length.
int64_t num_kv_tokens_on_host(const AttentionCall& call);

// Throws Error(kInvalidArgument) that names the request for cumulative lengths that decrease or exceed their
// tensor, for a request with more queries than max_seqlen_q, for more keys than the capacity, for a leftpad
// above the number of keys, and for an invalid page id.
void check_on_host(const AttentionCall& call);

}  // namespace attend::python
