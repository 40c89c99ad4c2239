// Table of four backends for tests of the resolver; none of them can be created.
#pragma once

#include <vector>

#include "attend/attention/resolver.h"

namespace attend::test {

inline constexpr Set<DType> kHalf{DType::kF16, DType::kBF16};
inline constexpr std::string_view kTritonAliases[] = {"portable"};

// Hopper: fa3 is preferred, triton serves everything, flashmla only decodes MLA with pages of 64. CPU: cpu.
inline std::vector<BackendEntry> small_table() {
  return {{.name = "cpu",
           .mha = {.prefill = {Architecture::kCpu},
                   .decode = {Architecture::kCpu},
                   .page_sizes = PageSizes::all(),
                   .dtypes = kHalf,
                   .kv_dtypes = kHalf,
                   .graphs = false},
           .mla = {.prefill = {Architecture::kCpu},
                   .decode = {Architecture::kCpu},
                   .page_sizes = PageSizes::all(),
                   .head_dims = {576, 512},
                   .dtypes = kHalf,
                   .kv_dtypes = kHalf,
                   .graphs = false}},
          {.name = "triton",
           .aliases = kTritonAliases,
           .mha = {.prefill = {Architecture::kHopper},
                   .decode = {Architecture::kHopper},
                   .page_sizes = PageSizes::all(),
                   .dtypes = kHalf,
                   .kv_dtypes = kHalf},
           .mla = {.prefill = {Architecture::kHopper},
                   .decode = {Architecture::kHopper},
                   .page_sizes = PageSizes::all(),
                   .head_dims = {576, 512},
                   .dtypes = kHalf,
                   .kv_dtypes = kHalf}},
          {.name = "fa3",
           .mha = {.prefill = {Architecture::kHopper},
                   .decode = {Architecture::kHopper},
                   .page_sizes = {1, 128},
                   .dtypes = kHalf,
                   .kv_dtypes = kHalf,
                   .sinks = false}},
          {.name = "flashmla",
           .mla = {.prefill = {},
                   .decode = {Architecture::kHopper},
                   .page_sizes = {64},
                   .head_dims = {576, 512},
                   .head_dim_rule = HeadDimRule::kExactly,
                   .dtypes = kHalf,
                   .kv_dtypes = kHalf}}};
}

inline const Requirement kMhaModel{.num_q_heads = 32,
                                   .q_heads_per_kv = 4,
                                   .head_dims = {128, 128},
                                   .dtype = DType::kBF16,
                                   .kv_dtype = DType::kBF16};
inline const Requirement kMlaModel{.kind = KvKind::kMla,
                                   .num_q_heads = 128,
                                   .q_heads_per_kv = 128,
                                   .head_dims = {576, 512},
                                   .dtype = DType::kBF16,
                                   .kv_dtype = DType::kBF16};
inline const Hardware kHopperMachine{
    .architecture = Architecture::kHopper, .name = "H200", .num_workers = 132};
inline const Hardware kCpuMachine{.architecture = Architecture::kCpu, .name = "a CPU", .num_workers = 2};

}  // namespace attend::test
