// Which backend is tried first, by phase, kind and architecture. The order is SGLang's default choice (what
// its users get without a flag), minus what its tables can not run.
#include "attend/attention/resolver.h"

namespace attend {
namespace {

// Draft trees go to FlashInfer (Triton for models with sinks) even where FA3 or TRT-LLM is the default.
constexpr Preference kHopperMha[] = {{.backend = "fa3", .up_to = Speculation::kChain},
                                     {.backend = "flashinfer"},
                                     {.backend = "triton"},
                                     {.backend = "fa3"}};
// FA4 steps in where TRT-LLM's kernels want equal head dims.
constexpr Preference kBlackwellMha[] = {
    {.backend = "trtllm_mha", .up_to = Speculation::kChain},
    {.backend = "fa4", .up_to = Speculation::kChain, .only_unequal_head_dims = true},
    {.backend = "flashinfer"},
    {.backend = "triton"}};
constexpr Preference kOtherMha[] = {{.backend = "flashinfer"}, {.backend = "triton"}};
constexpr Preference kHopperMla[] = {{.backend = "fa3"}, {.backend = "triton"}};
constexpr Preference kBlackwellMla[] = {{.backend = "flashinfer"}, {.backend = "triton"}};
constexpr Preference kOtherMla[] = {{.backend = "triton"}};
constexpr Preference kAmd[] = {{.backend = "aiter"}, {.backend = "triton"}};
constexpr Preference kCpu[] = {{.backend = "cpu"}};

}  // namespace

std::span<const Preference> preference(Phase, KvKind kind, Architecture architecture) {
  const bool mla = kind == KvKind::kMla;
  switch (architecture) {
    case Architecture::kCpu:
      return kCpu;
    case Architecture::kHopper:
      return mla ? std::span<const Preference>(kHopperMla) : kHopperMha;
    case Architecture::kBlackwell:
      return mla ? std::span<const Preference>(kBlackwellMla) : kBlackwellMha;
    case Architecture::kAmd:
      return kAmd;
    case Architecture::kTuring:
    case Architecture::kAmpere:
    case Architecture::kAda:
    case Architecture::kBlackwellGeforce:
      return mla ? std::span<const Preference>(kOtherMla) : kOtherMha;
  }
  return {};
}

}  // namespace attend
