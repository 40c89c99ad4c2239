// Quantization: how a checkpoint stores the weights of its linear layers, as its config.json says.
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

// Which tensors a quantized weight consists of, with N outputs and K inputs:
enum class WeightStorage : uint8_t {
  kPlain,       // weight: f32, f16 or bf16 [N, K]
  kFp8,         // weight: F8_E4M3 [N, K]; weight_scale, or weight_scale_inv of blocks
  kInt8,        // weight: I8 [N, K]; weight_scale [N, groups] or one; maybe weight_zero_point
  kPackedInt8,  // as kPackedInt4, of four bytes a word
  kGptqInt8,    // as kGptq, of four bytes a word
  kPackedInt4,  // weight_packed: I32 [N, K / 8]; weight_scale [N, groups]; maybe weight_zero_point,
                // weight_g_idx
  kGptq,        // qweight: I32 [K / 8, N]; qzeros I32 [groups, N / 8]; scales [groups, N]; g_idx I32 [K]
  kAwq,         // qweight: I32 [K, N / 8]; qzeros I32 [groups, N / 8]; scales [groups, N]
  kMxFp4,       // <name>_blocks: U8 [.., N, K / 32, 16]; <name>_scales: U8 [.., N, K / 32]
  kPackedMxFp4  // weight_packed: U8 [N, K / 2]; weight_scale: U8 [N, K / 32]
};

// A weight is quantized where its tensors are there; the lists of layers that are not only repeat that.
struct Quantization {
  WeightStorage storage = WeightStorage::kPlain;
  std::string method = {};  // "gptq", "compressed-tensors": for messages
  // Inputs that share a scale: a multiple of 32; 0: all of an output's. Of fp8: of blocks, 0 where there are
  // none.
  int64_t group_ins = 0;
  int64_t group_outs = 0;       // of blocks of fp8
  bool reorders = false;        // inputs are grouped by an index that has to be there (act-order)
  bool has_zeros = false;       // zero points have to be there (compressed-tensors, not symmetric)
  bool zeros_less_one = false;  // GPTQ's first format stores a zero point less 1
  // Who made it rounds what layers read to fp8 too, as its activation_scheme or input_activations says.
  bool rounds_x = false;
  // Further kinds of weights in the same files, without others of their own: a weight is of the first kind
  // whose tensors it has.
  std::vector<Quantization> others = {};
};

// Kind 0 is the quantization itself, kind 1 the first of the others.
inline const Quantization& kind_of(const Quantization& quantization, size_t kind) {
  return kind == 0 ? quantization : quantization.others[kind - 1];
}
inline size_t num_kinds(const Quantization& quantization) { return 1 + quantization.others.size(); }

// "fp8 in blocks of 128 x 128 (fp8)", "int4 in groups of 128 and int8 (gptq)"; of plain ones
// nothing.
std::string to_string(const Quantization& quantization);
// Of the first kind, without its method: "int4 in groups of 128".
std::string format_name(const Quantization& quantization);

// Bytes of an element of the first kind, its share of a scale of 16 bits (of 8 bits: 32) included; zero
// points apart.
double bytes_per_weight(const Quantization& quantization);

class JsonNode;
// Of quantization_config. Throws Error(kUnsupported) for a method, numbers
// of bits or a group that attend does not have, with those it has, Error(kCorruptFile) for a value that none
// can have.
Quantization read_quantization(const JsonNode& json);
// The same of ModelOpt's own file: its quant_algo, "quantization" of hf_quant_config.json.
Quantization read_modelopt_quantization(const JsonNode& json);

struct StoredFormat {
  // "int4 in groups of 128 by act-order", "fp8 per output", "bfloat16".
  std::string name;
  WeightStorage storage = WeightStorage::kPlain;
  int64_t num_elements = 0;
  // Of their tensors: elements, scales, zero points and orders.
  double num_bytes = 0.0;
};

inline bool has_quantized(std::span<const StoredFormat> formats) {
  return std::ranges::any_of(
      formats, [](const StoredFormat& format) { return format.storage != WeightStorage::kPlain; });
}

}  // namespace attend
#pragma GCC visibility pop
