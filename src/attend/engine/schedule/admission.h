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

// How many of a prompt's tokens a step computes that has room for `budget` of them: all, or as many as end at
// the border of a page. At times none.
int chunk_size(int num_computed, int num_to_compute, int budget, int page_size);

}  // namespace attend
