# Collective operations of ranks.
attend_kernels(comm
  SOURCES
    cpu/rank_barrier.cc
    cpu/rank_memory.cc
  CUDA
    cuda/peer_ranks.cc
    cuda/push_kernels.cu)
