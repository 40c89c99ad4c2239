// Quantization: the stored format of a checkpoint's linear layers according to its config.json.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace attend {

// Tensors of a quantized weight with N outputs and K inputs.
enum class WeightStorage : uint8_t {
  kPlain,        // weight: f32, f16 or bf16 [N, K]
  kFp8,          // weight: F8_E4M3 [N, K]; weight_scale, or weight_scale_inv for blocks
  kInt8,         // weight: I8 [N, K]; weight_scale [N, groups] or one; optional weight_zero_point
  kPackedInt8,   // as kPackedInt4, with four bytes per word
  kGptqInt8,     // as kGptq, with four bytes per word
  kPackedInt4,   // weight_packed: I32 [N, K / 8]; weight_scale [N, groups]; maybe weight_zero_point,
                 // weight_g_idx
  kGptq,         // qweight: I32 [K / 8, N]; qzeros I32 [groups, N / 8]; scales [groups, N]; g_idx I32 [K]
  kAwq,          // qweight: I32 [K, N / 8]; qzeros I32 [groups, N / 8]; scales [groups, N]
  kMxFp4,        // <name>_blocks: U8 [.., N, K / 32, 16]; <name>_scales: U8 [.., N, K / 32]
  kPackedMxFp4,  // weight_packed: U8 [N, K / 2]; weight_scale: U8 [N, K / 32]
  kBlocks        // weight: blocks of GGUF, U8 [N, blocks, bytes per block]; the format is that of the tensor
};

// A weight is quantized if the checkpoint has the tensors of that format. The config's lists of layers
// without quantization are redundant and are not read.
struct Quantization {
  WeightStorage storage = WeightStorage::kPlain;
  std::string method = {};  // "gptq", "compressed-tensors": for messages
  // Inputs that share a scale: a multiple of 32; 0: all inputs of an output. For fp8: inputs per block, 0
  // without blocks.
  int64_t group_ins = 0;
  int64_t group_outs = 0;       // outputs per block of fp8
  bool reorders = false;        // act-order: requires a tensor with the group of each input
  bool has_zeros = false;       // requires zero points (compressed-tensors that are not symmetric)
  bool zeros_less_one = false;  // zero points are stored less 1 (first GPTQ format)
  // The checkpoint is calibrated for inputs rounded to fp8, according to activation_scheme or
  // input_activations.
  bool rounds_x = false;
  // Further formats in the same files, each with empty `others`. A weight has the first format that matches
  // its tensors.
  std::vector<Quantization> others = {};
};

// Kind 0 is the quantization itself, kind 1 the first of the others.
inline const Quantization& weight_kind(const Quantization& quantization, size_t kind) {
  return kind == 0 ? quantization : quantization.others[kind - 1];
}
inline size_t num_kinds(const Quantization& quantization) { return 1 + quantization.others.size(); }

// "fp8 in blocks of 128 x 128 (fp8)", "int4 in groups of 128 and int8 (gptq)"; empty without quantization.
std::string to_string(const Quantization& quantization);
// Name of the first kind without its method: "int4 in groups of 128".
std::string format_name(const Quantization& quantization);

// Bytes per element of the first kind, including its share of a scale (16 bits for 4-bit elements, 32 bits
// for 8-bit elements), without zero points.
double bytes_per_weight(const Quantization& quantization);

class JsonNode;
// Reads quantization_config. For an unsupported method, number of bits or group size, throws
// Error(kUnsupported) with the supported ones. For a value that no method accepts, throws
// Error(kCorruptFile).
Quantization read_quantization(const JsonNode& json);
// Same for ModelOpt's own file: `json` is "quantization" of hf_quant_config.json, with quant_algo.
Quantization read_modelopt_quantization(const JsonNode& json);

struct StoredFormat {
  // "int4 in groups of 128 by act-order", "fp8 per output", "bfloat16".
  std::string name;
  WeightStorage storage = WeightStorage::kPlain;
  int64_t num_elements = 0;
  // Includes elements, scales, zero points and group indices.
  double num_bytes = 0.0;
};

// True for formats that CPUs multiply by activations in int8 (kernels::LinearArgs::rounds_x).
constexpr bool rounds_x_to_int8(WeightStorage storage) {
  return storage != WeightStorage::kPlain && storage != WeightStorage::kFp8;
}

inline bool rounds_x_to_int8(std::span<const StoredFormat> formats) {
  return std::ranges::any_of(formats,
                             [](const StoredFormat& format) { return rounds_x_to_int8(format.storage); });
}

inline bool has_quantized(std::span<const StoredFormat> formats) {
  return std::ranges::any_of(
      formats, [](const StoredFormat& format) { return format.storage != WeightStorage::kPlain; });
}

}  // namespace attend
#pragma GCC visibility pop
