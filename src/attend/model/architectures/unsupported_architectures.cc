#include "attend/model/architectures/unsupported_architectures.h"

#include <algorithm>

namespace attend {
namespace {

constexpr UnsupportedArchitecture kUnsupported[] = {
    {"ApertusFor", "the activation xIELU"},
    {"BailingMoeLinearFor", "lightning attention layers"},
    {"BartFor", "an encoder and cross-attention layers"},
    {"BioGptFor", "LayerNorm in a decoder"},
    {"BlenderbotFor", "an encoder and cross-attention layers"},
    {"BloomFor", "ALiBi, and LayerNorm in a decoder"},
    {"BltFor", "patches of bytes instead of tokens"},
    {"CTRLLMHead", "LayerNorm in a decoder"},
    {"CodeGenFor", "attention and MLP in parallel, and LayerNorm in a decoder"},
    {"Cohere2For", "attention and MLP in parallel, and LayerNorm in a decoder"},
    {"Cohere2MoeFor", "attention and MLP in parallel, and LayerNorm in a decoder"},
    {"CohereFor", "attention and MLP in parallel, and LayerNorm in a decoder"},
    {"DbrxFor", "LayerNorm in a decoder, and clip_qkv"},
    {"DeepseekV32For", "sparse attention with an indexer (DSA)"},
    {"DiffLlamaFor", "differential attention"},
    {"FalconFor", "attention and MLP in parallel, and LayerNorm in a decoder"},
    {"FalconMambaFor", "Mamba-1 layers"},
    {"GPT2LMHead", "LayerNorm in a decoder"},
    {"GPTBigCodeFor", "LayerNorm in a decoder"},
    {"GPTJFor", "attention and MLP in parallel, and LayerNorm in a decoder"},
    {"GPTNeoFor", "LayerNorm in a decoder"},
    {"GPTNeoXFor", "attention and MLP in parallel, and LayerNorm in a decoder"},
    {"Gemma3nFor", "AltUp and LAuReL blocks"},
    {"GlmMoeDsaFor", "sparse attention with an indexer (DSA)"},
    {"JambaFor", "Mamba-1 layers"},
    {"JetMoeFor", "experts of attention heads"},
    {"LongT5For", "an encoder and cross-attention layers"},
    {"M2M100For", "an encoder and cross-attention layers"},
    {"MBartFor", "an encoder and cross-attention layers"},
    {"MT5For", "an encoder and cross-attention layers"},
    {"Mamba2For", "a cache without attention layers"},
    {"MambaFor", "Mamba-1 layers"},
    {"MarianMT", "an encoder and cross-attention layers"},
    {"MiniMaxFor", "lightning attention layers"},
    {"MiniMaxText01For", "lightning attention layers"},
    {"MllamaFor", "cross-attention layers over images"},
    {"MoonshineFor", "an encoder of audio and cross-attention layers"},
    {"MptFor", "ALiBi, and LayerNorm in a decoder"},
    {"NemotronFor", "LayerNorm in a decoder"},
    {"OPTFor", "LayerNorm in a decoder"},
    {"OlmoFor", "LayerNorm without weights, and clip_qkv"},
    {"OpenAIGPTLMHead", "LayerNorm in a decoder"},
    {"PLBartFor", "an encoder and cross-attention layers"},
    {"PegasusFor", "an encoder and cross-attention layers"},
    {"PersimmonFor", "LayerNorm in a decoder"},
    {"PhiFor", "attention and MLP in parallel, and LayerNorm in a decoder"},
    {"PhiMoEFor", "LayerNorm in a decoder, and SparseMixer routing"},
    {"PhimoeFor", "LayerNorm in a decoder, and SparseMixer routing"},
    {"ProphetNetFor", "LayerNorm in a decoder"},
    {"RecurrentGemmaFor", "RG-LRU layers"},
    {"Rwkv6For", "RWKV layers"},
    {"Rwkv7For", "RWKV layers"},
    {"RwkvFor", "RWKV layers"},
    {"Speech2TextFor", "an encoder of audio and cross-attention layers"},
    {"StableLmFor", "LayerNorm in a decoder"},
    {"Starcoder2For", "LayerNorm in a decoder"},
    {"SwitchTransformersFor", "an encoder and cross-attention layers"},
    {"T5For", "an encoder and cross-attention layers"},
    {"T5GemmaFor", "an encoder and cross-attention layers"},
    {"UMT5For", "an encoder and cross-attention layers"},
    {"WhisperFor", "an encoder of audio and cross-attention layers"},
    {"XGLMFor", "LayerNorm in a decoder"},
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
