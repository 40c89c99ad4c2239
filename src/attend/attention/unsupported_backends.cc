#include "attend/attention/unsupported_backends.h"

#include <algorithm>

namespace attend {
namespace {

constexpr UnsupportedBackend kForeign[] = {
    {"flex_attention", "PyTorch's compiler makes its kernels; torch_native and triton serve what it serves"},
    {"dual_chunk_flash_attn", "attend has no dual chunk attention (Qwen2.5-1M)"},
    {"dsa", "attend has no sparse attention by an indexer (DeepSeek-V3.2)"},
    {"nsa", "SGLang's older name of dsa; attend has no sparse attention by an indexer (DeepSeek-V3.2)"},
    {"dsv4", "attend has no compressed attention (DeepSeek-V4)"},
    {"compressed", "SGLang's older name of dsv4; attend has no compressed attention (DeepSeek-V4)"},
    {"qsa", "attend has no attention to the top blocks of pooled keys (Qwen4)"},
    {"minicpm_flashattn", "attend has no block-sparse attention of MiniCPM"},
    {"minicpm_flashinfer", "attend has no block-sparse attention of MiniCPM"},
    {"llada2_cfg_flashinfer", "attend has no diffusion language models (LLaDA 2)"},
    {"hpc_ops", "fa3 has its contract at pages of 64, for every head dim and group size"},
    {"wave", "it is AMD's; aiter and triton are the contracts for AMD GPUs"},
    {"ascend", "attend has no kernels for Ascend NPUs"},
    {"intel_xpu", "attend has no kernels for Intel GPUs"},
};

}  // namespace

std::span<const UnsupportedBackend> unsupported_backends() { return kForeign; }

const UnsupportedBackend* find_unsupported_backend(std::string_view name) {
  const auto* const found = std::ranges::find(kForeign, name, &UnsupportedBackend::name);
  return found == std::end(kForeign) ? nullptr : found;
}

}  // namespace attend
