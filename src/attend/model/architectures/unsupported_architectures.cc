#include "attend/model/architectures/unsupported_architectures.h"

#include <algorithm>

namespace attend {
namespace {

constexpr UnsupportedArchitecture kUnsupported[] = {
    {"BailingHybridFor", "a record of its config and tensor names"},
    {"BailingMoeLinearFor", "lightning attention layers"},
    {"BailingMoeV2For", "a record of its config and tensor names"},
    {"BartFor", "an encoder and cross-attention layers"},
    {"BioGptFor", "a record of its config and tensor names"},
    {"BlenderbotFor", "an encoder and cross-attention layers"},
    {"BloomFor", "ALiBi"},
    {"BltFor", "patches of bytes instead of tokens"},
    {"CTRLLMHead", "sinusoidal positions"},
    {"CodeGenFor", "a record of its config and tensor names"},
    {"DbrxFor", "a record of its config and tensor names"},
    {"DiffLlamaFor", "differential attention"},
    {"FalconMambaFor", "Mamba-1 layers"},
    {"GPTBigCodeFor", "a record of its config and tensor names"},
    {"GPTNeoFor", "a record of its config and tensor names"},
    {"Gemma3nFor", "AltUp and LAuReL blocks"},
    {"InternLM2For", "a record of its config and tensor names"},
    {"JambaFor", "Mamba-1 layers"},
    {"JetMoeFor", "experts of attention heads"},
    {"LongT5For", "an encoder and cross-attention layers"},
    {"M2M100For", "an encoder and cross-attention layers"},
    {"MBartFor", "an encoder and cross-attention layers"},
    {"MT5For", "an encoder and cross-attention layers"},
    {"Mamba2For", "a cache without attention layers"},
    {"MambaFor", "Mamba-1 layers"},
    {"MarianMT", "an encoder and cross-attention layers"},
    {"MiniCPMFor", "a record of its config and tensor names"},
    {"MiniMaxFor", "lightning attention layers"},
    {"MiniMaxText01For", "lightning attention layers"},
    {"MllamaFor", "cross-attention layers over images"},
    {"MoonshineFor", "an encoder of audio and cross-attention layers"},
    {"MptFor", "ALiBi"},
    {"OpenAIGPTLMHead", "a record of its config and tensor names"},
    {"PLBartFor", "an encoder and cross-attention layers"},
    {"PegasusFor", "an encoder and cross-attention layers"},
    {"PersimmonFor", "LayerNorm of q and k"},
    {"ProphetNetFor", "n-gram attention streams"},
    {"RecurrentGemmaFor", "RG-LRU layers"},
    {"Rwkv6For", "RWKV layers"},
    {"Rwkv7For", "RWKV layers"},
    {"RwkvFor", "RWKV layers"},
    {"Speech2TextFor", "an encoder of audio and cross-attention layers"},
    {"Step3p5For", "limits of SwiGLU by layer"},
    {"Step3p7For", "limits of SwiGLU by layer"},
    {"SwitchTransformersFor", "an encoder and cross-attention layers"},
    {"T5For", "an encoder and cross-attention layers"},
    {"T5GemmaFor", "an encoder and cross-attention layers"},
    {"UMT5For", "an encoder and cross-attention layers"},
    {"WhisperFor", "an encoder of audio and cross-attention layers"},
    {"XGLMFor", "sinusoidal positions"},
    {"Zamba2For", "attention layers that share weights, with an adapter per layer"},
    {"ZambaFor", "Mamba-1 layers"},
    {"xLSTMFor", "xLSTM layers"},
};

}  // namespace

std::span<const UnsupportedArchitecture> unsupported_architectures() { return kUnsupported; }

std::string_view find_missing_part(std::string_view architecture) {
  const auto found = std::ranges::find_if(
      kUnsupported, [&](const UnsupportedArchitecture& one) { return architecture.starts_with(one.name); });
  return found == std::end(kUnsupported) ? std::string_view() : found->missing;
}

}  // namespace attend
