// BatchIndex: the slots of the keys of a step's requests, in the form that a backend's kernels read. It owns
// the memory.
#pragma once

#include "attend/attention/backend.h"
#include "attend/backends/table.h"
#include "attend/kernels/attention/attention_batch.h"
#include "attend/kernels/metadata/metadata.h"
#include "attend/tensor/tensor.h"

namespace attend {

class BatchIndex {
 public:
  // Allocates num_bytes() bytes; throws Error(kOutOfMemory).
  BatchIndex(const BackendSpec& spec, const BackendConfig& config);
  static size_t num_bytes(const BackendSpec& spec, const BackendConfig& config);

  // Builds the index of the step's requests. Their table must outlive the step.
  void build(const kernels::RequestRows& requests, Stream& stream);
  const kernels::KvIndex& get() const { return index_; }

 private:
  int page_size_, max_context_len_;
  Tensor table_;   // int32, on the device: page table or CSR indices
  Tensor indptr_;  // int32, on the device: CSR
  kernels::KvIndex index_;
};

}  // namespace attend
