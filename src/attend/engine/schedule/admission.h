// Admission: whether what runs and what waits will fit into the KV pool together, by what requests may still
// say. Pure arithmetic; the rules are SGLang's.
#pragma once

#include <cstdint>

#include "attend/engine/request.h"

namespace attend {

// Tokens that a request may still add, as far as they are planned for: very long answers mostly end early.
int num_planned_tokens(const Request& request);

// Whether `a` is preempted before `b`: what is lost with a short answer is little, and a long prompt gives
// back most.
bool is_preempted_before(const Request& a, const Request& b);

// What share of their planned tokens running requests are going to need. It begins with a guess, falls while
// all goes well, and after a preemption is what would have avoided it.
class NewTokenRatio {
 public:
  // `conservativeness`: 1 is the usual guess, more admits fewer.
  explicit NewTokenRatio(double conservativeness);
  double value() const { return value_; }
  void after_decode();
  // Of the requests that still run: tokens of their answers so far, and at most, together.
  void after_preemption(int64_t num_output, int64_t max_new_tokens, int num_running);
  void reset() { value_ = initial_; }

 private:
  double initial_, smallest_, value_;
};

// Tokens that are left for prompts and their answers.
class AdmissionBudget {
 public:
  // `unit`: tokens are taken in pages of so many; 1 where they are counted one by one.
  AdmissionBudget(int64_t num_tokens, int unit) : left_(static_cast<double>(num_tokens)), unit_(unit) {}
  void reserve(double num_tokens) { left_ -= num_tokens; }
  bool takes(int num_prompt_tokens, int num_planned) const {
    return static_cast<double>(num_prompt_tokens) + num_planned + unit_ < left_;
  }
  void charge(int num_prompt_tokens, int num_planned);
  double left() const { return left_; }

 private:
  double left_;
  int unit_;
};

// A prompt, and the step that computes its next chunk.
struct PromptChunk {
  int begin = 0;          // tokens computed so far
  int prompt_end = 0;     // tokens of the prompt, more than `begin`
  int room = 0;           // new tokens that the step has room for
  int grid = 1;           // RequestMemory::chunk_grid()
  bool is_whole = false;  // computed in one step or not at all: its tokens see those after them
  bool is_first = false;  // no other prompt is in the step: a chunk off the grid is better than none
};

// Position at which the chunk ends: prompt_end if the rest fits into the step, else the last multiple of the
// grid that does; `begin` if none of the prompt is computed. All rules about where prompts are cut are here.
int chunk_end(const PromptChunk& prompt);

}  // namespace attend
