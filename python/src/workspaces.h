// What calls need besides their tensors, and where it comes from: made for the call on the CPU, kept for the
// process on GPUs.
#pragma once

#include <memory>
#include <vector>

#include "attention_call.h"

namespace attend::python {

// Also while a stream of the calling thread is being captured.
std::unique_ptr<Workspace> make_workspace(const kernels::AttentionPlanLimits& limits, int64_t num_new_tokens,
                                          Device device);

// Those of GPUs: a call whose sizes were seen before allocates its results alone. What is too small is
// followed by something of twice the size and stays, because a captured graph may use it.
class Workspaces {
 public:
  // What the call is planned in, one per stream and geometry: calls on one stream use it one after another.
  // Gives the call its constants.
  Workspace& find_for(AttentionCall& call, const Stream& stream);
  // Gives the call those of its arrays that follow from shapes alone, so that no launch makes them: sums of
  // equal query lengths, where dense rows begin, key lengths where all rows are full.
  void give_constants(AttentionCall& call, Device device);
  // One for a plan that its caller keeps, used on no other stream before. When its last owner is gone it is
  // there for the next plan: memory of a GPU is not taken and given back, which waits for the GPU, in every
  // step. One that was used on another stream, too, may be in use there still: the next call frees it, which
  // waits.
  std::shared_ptr<Workspace> lend(const kernels::AttentionPlanLimits& limits, int64_t num_new_tokens,
                                  const Stream& stream);
  // The workers of a plan, 0 for all, that share its work among `most` CTAs or threads at most.
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
  void free_unlent_of_several_streams();
  // first, first + step, first + 2 step, ... Constant, so that all streams share it. None is freed, since a
  // captured graph may use it: empty where there are many already, but for what decode steps want.
  View<const int32_t> progression(int32_t first, int32_t step, int count, Device device);

  std::vector<Entry> entries_, unlent_;
  std::vector<Progression> progressions_;
  std::vector<int> num_sms_;  // by the index of the device; 0: not asked for yet
};

// Plans and attends, on the CPU after a check of every length and page id that kernels trust.
void run(AttentionCall& call, Workspaces& workspaces, Stream stream);
// Appends the keys of a call and attends to none; checked likewise.
void append(AttentionCall& call, Workspaces& workspaces, Stream stream);
// Attends with a plan made before for these lengths; checked likewise.
void run_planned(AttentionCall& call, Workspace& workspace, Workspaces& workspaces, Stream stream);

}  // namespace attend::python
