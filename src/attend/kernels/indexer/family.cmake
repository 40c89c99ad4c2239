# Sparse attention over the keys that an indexer selects.
attend_kernels(indexer
  HEADERS
    sparse_mla.h
  SOURCES
    reference.cc
    sparse_mla.cc
    sparse_mla_plan.cc
    cpu/select_keys.cc
  ISA
    "cpu/index_scores IndexScoreKernels index_score_kernels")
