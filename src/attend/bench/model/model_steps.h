// What the benches of models on CPUs and on GPUs share: prompts, and the bytes and operations that a model's
// steps cannot do without.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attend/engine/engine.h"

namespace attend::bench {

// The same ids each time.
std::vector<int32_t> random_prompt(int num_tokens, int vocab_size);

// Throws Error(kCorruptFile) for a request that ended without a token: it has not done the work that is
// timed.
void require_token(const RequestOutput& output);

// Bytes of the weights that a token multiplies: all but the embedding table, which a tied lm_head multiplies
// too.
double multiplied_bytes(const Engine& engine);

// The experts that the tokens of a decode step meet, of those of a layer: a mean over layers. Counted where
// the router spreads tokens (RouterRule::spread); else nothing.
std::optional<double> touched_experts(const ModelSpec& spec, int batch_size);

// Bytes that a decode step of `batch_size` requests of `context` tokens each must read: those weights and
// K/V; of experts those that are met, or would be if tokens chose evenly and apart.
double decode_bytes(const Engine& engine, int batch_size, int context);

// Multiplications and additions of a prompt's last `num_tokens` tokens behind `depth` others. Only the last
// token meets the lm_head.
double prompt_operations(const Engine& engine, int depth, int num_tokens);

}  // namespace attend::bench
