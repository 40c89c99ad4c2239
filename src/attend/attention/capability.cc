#include "attend/attention/capability.h"

#include <algorithm>

namespace attend {
namespace {

constexpr Architecture kArchitectures[] = {
    Architecture::kCpu,    Architecture::kTuring,    Architecture::kAmpere,           Architecture::kAda,
    Architecture::kHopper, Architecture::kBlackwell, Architecture::kBlackwellGeforce, Architecture::kAmd};
constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};

void append(std::string& list, std::string_view separator, std::string_view word) {
  if (!list.empty()) list += separator;
  list += word;
}

}  // namespace

std::string_view to_string(Architecture architecture) {
  switch (architecture) {
    case Architecture::kCpu:
      return "cpu";
    case Architecture::kTuring:
      return "turing";
    case Architecture::kAmpere:
      return "ampere";
    case Architecture::kAda:
      return "ada";
    case Architecture::kHopper:
      return "hopper";
    case Architecture::kBlackwell:
      return "blackwell";
    case Architecture::kBlackwellGeforce:
      return "blackwell-geforce";
    case Architecture::kAmd:
      return "amd";
  }
  return "unknown";
}

std::string to_string(Set<Architecture> architectures) {
  std::string list;
  for (Architecture architecture : kArchitectures)
    if (architectures.contains(architecture)) append(list, ", ", to_string(architecture));
  return list.empty() ? "nothing" : list;
}

std::string to_string(Set<DType> dtypes) {
  std::string list;
  for (DType dtype : kFloats)
    if (dtypes.contains(dtype)) append(list, ", ", to_string(dtype));
  return list;
}

std::string_view to_string(Speculation speculation) {
  switch (speculation) {
    case Speculation::kNone:
      return "none";
    case Speculation::kChain:
      return "chain";
    case Speculation::kTree:
      return "tree";
  }
  return "unknown";
}

std::string PageSizes::to_string() const {
  if (*this == all()) return "any";
  std::string list;
  for (int size = 1; size <= 256; size *= 2)
    if (contains(size)) append(list, ", ", std::to_string(size));
  return list.empty() ? "none" : list;
}

std::string describe(const Capability& capability) {
  std::string kinds, features;
  if (capability.kinds.contains(KvKind::kMha)) append(kinds, "+", "MHA");
  if (capability.kinds.contains(KvKind::kMla)) append(kinds, "+", "MLA");
  const auto feature = [&](bool has, std::string_view name) {
    if (has) append(features, ", ", name);
  };
  feature(capability.window, "window");
  feature(capability.chunk, "chunk");
  feature(capability.logit_cap, "logit cap");
  feature(capability.sinks, "sinks");
  feature(capability.cross, "cross");
  feature(capability.bidirectional, "bidirectional");
  feature(capability.kv_scales, "KV scales");
  feature(!capability.deterministic.empty(), "deterministic");
  return kinds + "; pages " + capability.page_sizes.to_string() + "; KV " + to_string(capability.kv_dtypes) +
         "; " + features + "; drafts " + std::string(to_string(capability.speculation)) + "; prefill on " +
         to_string(capability.prefill) + "; decode on " + to_string(capability.decode);
}

Requirement requirement_of(const ModelGeometry& model) {
  Requirement requirement{.dtype = model.dtype, .kv_dtype = model.kv_dtype};
  for (const AttentionLayer& layer : model.layers) {
    if (layer.kind == KvKind::kMla) requirement.kind = KvKind::kMla;
    requirement.num_q_heads = std::max(requirement.num_q_heads, layer.num_q_heads);
    requirement.head_dim_qk = std::max(requirement.head_dim_qk, layer.head_dim_qk);
    requirement.head_dim_v = std::max(requirement.head_dim_v, layer.head_dim_v);
    requirement.window |= layer.window_left >= 0;
    requirement.chunk |= layer.chunk > 0;
    requirement.logit_cap |= layer.logit_cap > 0.0f;
    requirement.sinks |= !layer.sinks.empty();
    requirement.cross |= layer.type == AttentionType::kCross;
    requirement.bidirectional |=
        layer.type == AttentionType::kDecoderBidirectional || layer.type == AttentionType::kEncoderOnly;
  }
  return requirement;
}

}  // namespace attend
