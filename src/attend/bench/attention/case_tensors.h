// CaseTensors: the tensors of an AttentionCase, its K/V in as many layers as its residency asks for.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "attend/bench/attention/attention_case.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/common/cpu/isa.h"
#include "attend/tensor/arena.h"

namespace attend::bench {

// Bytes that no cache of this machine holds a useful part of: four times its last level. A VM may be told the
// size of a cache that it shares with others; behind twice that size, reading was still getting slower.
size_t memory_resident_bytes();

class CaseTensors {
 public:
  // `memory` holds K/V of all layers; what lies in it is overwritten. Its size decides how many layers a case
  // of Residency::kMemory has.
  CaseTensors(const AttentionCase& spec, std::span<std::byte> memory);

  int num_layers() const { return num_layers_; }
  // The K/V of one layer, as the read probe reads it.
  std::span<const std::byte> kv_bytes(int layer) const;

  kernels::QueryBatch batch() const;
  kernels::AttentionPlanLimits limits(int num_threads) const;
  // Attends to one layer.
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
