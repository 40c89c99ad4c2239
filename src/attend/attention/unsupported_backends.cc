#include "attend/attention/unsupported_backends.h"

#include <algorithm>

namespace attend {
namespace {

constexpr UnsupportedBackend kUnsupportedBackends[] = {
    {"flex_attention",
     "its kernels are made by PyTorch's compiler; torch_native and triton support the same features"},
    {"dual_chunk_flash_attn",
     "up to chunk_size tokens (Qwen2.5-1M: 262,144) dual chunk attention is plain attention, which every "
     "backend computes; attend limits the context to that length"},
    {"dsv4", "compressed attention (DeepSeek-V4) is not supported"},
    {"compressed", "SGLang's former name of dsv4; compressed attention (DeepSeek-V4) is not supported"},
    {"qsa", "attention to the top blocks of pooled keys (Qwen4) is not supported"},
    {"minicpm_flashattn", "block-sparse attention (MiniCPM) is not supported"},
    {"minicpm_flashinfer", "block-sparse attention (MiniCPM) is not supported"},
    {"llada2_cfg_flashinfer", "diffusion language models (LLaDA 2) are not supported"},
    {"hpc_ops", "fa3 with --page-size 64 has the same contract, for every head dim and group size"},
    {"wave", "it is specific to AMD GPUs, for which attend supports aiter and triton"},
    {"ascend", "Ascend NPUs are not supported"},
    {"intel_xpu", "Intel GPUs are not supported"},
};

}  // namespace

std::span<const UnsupportedBackend> unsupported_backends() { return kUnsupportedBackends; }

const UnsupportedBackend* find_unsupported_backend(std::string_view name) {
  const auto* const found = std::ranges::find(kUnsupportedBackends, name, &UnsupportedBackend::name);
  return found == std::end(kUnsupportedBackends) ? nullptr : found;
}

}  // namespace attend
