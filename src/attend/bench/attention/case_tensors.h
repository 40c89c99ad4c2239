// CaseTensors: tensors of an AttentionCase, with the number of K/V layers that its residency requires.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "attend/bench/attention/attention_case.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/common/cpu/isa.h"
#include "attend/tensor/arena.h"

namespace attend::bench {

// Returns a size of which no cache of this machine holds a useful part: four times its last level. A VM may
// report the size of a cache that it shares with others; reading still got slower beyond twice that size.
size_t memory_resident_bytes();

class CaseTensors {
 public:
  // `memory` is overwritten with the K/V of all layers. Its size determines the number of layers of a case
  // with Residency::kMemory.
  CaseTensors(const AttentionCase& spec, std::span<std::byte> memory);

  int num_layers() const { return num_layers_; }
  // K/V of one layer, as bytes for the read probe.
  std::span<const std::byte> kv_bytes(int layer) const;

  kernels::QueryBatch batch() const;
  kernels::AttentionPlanLimits limits(int num_threads) const;
  // Computes the attention of one layer.
  void attend(int layer, kernels::AttentionPlan& plan, kernels::cpu::Isa isa) const;

 private:
  kernels::KvIndex index() const;
  kernels::AttentionArgs attention_args(int layer) const;
  kernels::MlaArgs mla_args(int layer) const;
  TensorView pages(int layer, int64_t offset_bytes, int dim) const;

  AttentionCase spec_;
  std::span<std::byte> memory_;
  int num_layers_ = 0;
  int num_pages_ = 0;
  int64_t layer_bytes_ = 0;
  Tensor q_, q_rope_, out_;
  std::vector<int32_t> cu_seqlen_q_, seqlen_kv_, page_table_;
};

}  // namespace attend::bench
