// Helpers of the model benches on CPUs and GPUs: prompts, and the minimum bytes and operations of a model's
// steps.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attend/engine/engine.h"

namespace attend::bench {

// Returns the same ids in each call.
std::vector<int32_t> random_prompt(int num_tokens, int vocab_size);

// Throws Error(kCorruptFile) for a request that ended without a token, since it has not done the timed work.
void require_token(const RequestOutput& output);

// Bytes of the weights that a token is multiplied by: all except the embedding table, unless the lm_head is
// tied to it.
double multiplied_bytes(const Engine& engine);

// Mean number of experts per layer that the tokens of a decode step use. Computed if the router spreads
// tokens (RouterRule::spread); otherwise no value.
std::optional<double> touched_experts(const ModelSpec& spec, int batch_size);

// Minimum bytes that a decode step of `batch_size` requests with `context` tokens each moves: it reads those
// weights and K/V, and reads and writes recurrent states. Experts count if a token uses them: the exact
// number, or the expected one if tokens chose uniformly and independently.
double decode_bytes(const Engine& engine, int batch_size, int context);

// Multiplications and additions of the last `num_tokens` tokens of a prompt after `depth` others. The lm_head
// is applied to the last token only.
double prompt_operations(const Engine& engine, int depth, int num_tokens);

}  // namespace attend::bench
