// Workspaces: memory that calls need in addition to their tensors. On the CPU it is allocated per call, on
// GPUs it is kept for the process.
#pragma once

#include <memory>
#include <vector>

#include "attention/attention_call.h"

namespace attend::python {

// Also works while a stream of the calling thread is being captured.
std::unique_ptr<Workspace> make_workspace(const kernels::AttentionPlanLimits& limits, int64_t num_new_tokens,
                                          Device device);

// Workspaces of GPUs: a call with known sizes allocates only its results. A workspace that is too small is
// not freed, since a captured graph may use it; another one of twice the size is added.
class Workspaces {
 public:
  // Returns the workspace for a call, one per stream and geometry, since calls on one stream are sequential.
  // Sets the call's constant arrays.
  Workspace& find_for(AttentionCall& call, const Stream& stream);
  // Sets those arrays of the call that depend only on shapes, so that no launch computes them: cumulative
  // query lengths if equal, start positions of dense rows, key lengths if all rows are full.
  void give_constants(AttentionCall& call, Device device);
  // Returns a workspace for a plan that its caller keeps, not used on other streams before. After its last
  // owner is gone, it is reused by the next plan, since allocating and freeing GPU memory in every step would
  // wait for the GPU. One that was used on several streams may still be in use; the next call frees it, which
  // waits.
  std::shared_ptr<Workspace> acquire(const kernels::AttentionPlanLimits& limits, int64_t num_new_tokens,
                                     const Stream& stream);
  // Returns the number of workers of a plan (0: all) that uses at most `most` CTAs or threads.
  int num_workers(int64_t most, Device device);

 private:
  struct Entry {
    Stream stream;
    std::unique_ptr<Workspace> workspace;
  };
  struct Progression {
    int32_t first, step;
    Tensor values;
  };

  Workspace& find(const AttentionCall& call, const Stream& stream);
  void free_multi_stream_workspaces();
  // Returns first, first + step, first + 2 step, ... It is constant, so all streams share it. Never freed,
  // since a captured graph may use it. Returns an empty view if there are many already, except for those that
  // decode steps need.
  View<const int32_t> progression(int32_t first, int32_t step, int count, Device device);

  std::vector<Entry> entries_, free_;
  std::vector<Progression> progressions_;
  std::vector<int> num_sms_;  // indexed by device; 0: not queried yet
};

// Plans and computes attention; on the CPU after checking every length and page id, which kernels do not
// check.
void run(AttentionCall& call, Workspaces& workspaces, Stream stream);
// Appends the keys of a call without attention. Same checks.
void append(AttentionCall& call, Workspaces& workspaces, Stream stream);
// Computes attention with an existing plan for these lengths. Same checks.
void run_planned(AttentionCall& call, Workspace& workspace, Workspaces& workspaces, Stream stream);

}  // namespace attend::python
