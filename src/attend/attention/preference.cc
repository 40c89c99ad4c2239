// Order in which backends are tried, by KV kind and architecture: SGLang's default choice without flags.
// SGLang's overrides by model name are not needed: GPT-OSS requires sinks and Llama 4 chunks, and
// FlashInfer's capability has neither.
#include "attend/attention/resolver.h"

namespace attend {
namespace {

// Draft trees use FlashInfer even if FA3 or TRT-LLM is the default; KV dtypes that FA3 does not support use
// Triton.
constexpr Preference kHopperMha[] = {{.backend = "fa3", .up_to = Speculation::kChain},
                                     {.backend = "flashinfer", .from = Speculation::kTree},
                                     {.backend = "triton"}};
// FA4 is used if head dims differ, which TRT-LLM's kernels do not support.
constexpr Preference kBlackwellMha[] = {
    {.backend = "trtllm_mha", .up_to = Speculation::kChain},
    {.backend = "fa4", .up_to = Speculation::kChain, .only_unequal_head_dims = true},
    {.backend = "flashinfer"},
    {.backend = "triton"}};
// FA3 is the default of deterministic inference on all architectures that it supports.
constexpr Preference kAmpereMha[] = {
    {.backend = "fa3", .only_deterministic = true}, {.backend = "flashinfer"}, {.backend = "triton"}};
constexpr Preference kOtherMha[] = {{.backend = "flashinfer"}, {.backend = "triton"}};
constexpr Preference kHopperMla[] = {{.backend = "fa3"}, {.backend = "triton"}};
constexpr Preference kBlackwellMla[] = {{.backend = "flashinfer"}, {.backend = "triton"}};
constexpr Preference kOtherMla[] = {{.backend = "triton"}};
constexpr Preference kAmd[] = {{.backend = "aiter"}, {.backend = "triton"}};
constexpr Preference kCpuMha[] = {{.backend = "cpu"}};
constexpr Preference kCpuMla[] = {{.backend = "cpu"}, {.backend = "dsa"}};

}  // namespace

std::span<const Preference> preference(KvKind kind, Architecture architecture) {
  const bool mla = kind == KvKind::kMla;
  switch (architecture) {
    case Architecture::kCpu:
      return mla ? std::span<const Preference>(kCpuMla) : kCpuMha;
    case Architecture::kAmpere:
    case Architecture::kAda:
      return mla ? std::span<const Preference>(kOtherMla) : kAmpereMha;
    case Architecture::kHopper:
      return mla ? std::span<const Preference>(kHopperMla) : kHopperMha;
    case Architecture::kBlackwell:
      return mla ? std::span<const Preference>(kBlackwellMla) : kBlackwellMha;
    case Architecture::kAmd:
      return kAmd;
    case Architecture::kTuring:
    case Architecture::kBlackwellGeforce:
      return mla ? std::span<const Preference>(kOtherMla) : kOtherMha;
  }
  return {};
}

}  // namespace attend
