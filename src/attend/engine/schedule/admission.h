// Admission: decides whether running and waiting requests fit into the KV pool, from an estimate of their
// remaining output. Pure arithmetic; the rules are SGLang's.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "attend/engine/request.h"

namespace attend {

// Returns the number of output tokens to reserve for a request: its remaining output up to a limit, since
// most requests with a large max_new_tokens end early.
int num_planned_tokens(const Request& request);

// Returns true if `a` is preempted before `b`. A short output loses little work; a long prompt frees many
// pages.
bool is_preempted_before(const Request& a, const Request& b);

// Share of their planned tokens that running requests are expected to generate. It starts at an initial
// estimate and decreases with each decode step. After a preemption it is set to the share that would have
// prevented this preemption.
class NewTokenRatio {
 public:
  // `conservativeness`: factor of the initial estimate; 1 is the default, higher values admit fewer requests.
  explicit NewTokenRatio(double conservativeness);
  double value() const { return value_; }
  void after_decode();
  // Arguments are sums over the requests that still run: output tokens so far, and their max_new_tokens.
  void after_preemption(int64_t num_output, int64_t max_new_tokens, int num_running);
  void reset() { value_ = initial_; }

 private:
  double initial_, smallest_, value_;
};

// Tokens that remain for prompts and outputs of new requests.
class AdmissionBudget {
 public:
  // `unit`: page size if tokens are allocated in pages; 1 if they are counted one by one.
  AdmissionBudget(int64_t num_tokens, int unit) : left_(static_cast<double>(num_tokens)), unit_(unit) {}
  void reserve(double num_tokens) { left_ -= num_tokens; }
  bool fits(int num_prompt_tokens, int num_planned) const {
    return static_cast<double>(num_prompt_tokens) + num_planned + unit_ < left_;
  }
  void charge(int num_prompt_tokens, int num_planned);
  double left() const { return left_; }

 private:
  double left_;
  int unit_;
};

// Prompt, and the step that computes its next chunk.
struct PromptChunk {
  int begin = 0;          // number of tokens computed so far
  int prompt_end = 0;     // number of tokens of the prompt, more than `begin`
  int room = 0;           // number of new tokens that fit into the step
  int grid = 1;           // RequestMemory::chunk_grid()
  bool is_whole = false;  // the prompt may not be split: its tokens attend to later ones
  bool is_first = false;  // the step has no other prompt: a chunk may end off the grid
  // Number of tokens that can be computed, at least `begin`; the next one waits for an image.
  int ready_end = std::numeric_limits<int>::max();
  std::span<const ImageRun> items = {};  // tokens that a chunk computes as a whole, from `begin` on
};

// Returns the position at which the chunk ends: prompt_end if the rest fits into the step, else the last
// multiple of the grid that fits and does not divide an item, or `begin` if no token is computed. All rules
// for splitting prompts are here.
int chunk_end(const PromptChunk& prompt);

}  // namespace attend
