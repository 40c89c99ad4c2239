// RankMemory: communicators of ranks that are threads of one process and read each other's tensors in host
// memory.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "attend/kernels/comm/cpu/rank_barrier.h"
#include "attend/tensor/communicator.h"

namespace attend::kernels::cpu {

// Sums require float32; other operations any dtype. Between the two barriers of an operation, each rank works
// on its share of all ranks' tensors, so no operation allocates memory.
class RankMemory {
 public:
  RankMemory(int num_ranks, std::chrono::milliseconds timeout);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  Communicator& communicator(int rank);
  RankBarrier& barrier() { return barrier_; }

 private:
  class Rank;
  // Operation that a rank has begun.
  struct Call {
    const char* name = "";
    TensorView x;
    int root = 0, axis = 0;
  };

  // Publishes the rank's call and waits for those of the other ranks. Throws Error(kInternal) if they differ.
  void begin(int rank, const Call& call);
  // Waits until no rank reads the call's tensors.
  void end(int rank, const char* name) { barrier_.wait(rank, name); }
  // x[share] = sum over ranks of x[share], in the tensors of the ranks [first, last).
  void sum(int64_t begin, int64_t end, int first, int last) const;

  RankBarrier barrier_;
  std::vector<Call> calls_;  // by rank
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace attend::kernels::cpu
