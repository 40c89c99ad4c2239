#include "attend/attention/capability.h"

#include <algorithm>
#include <limits>

#include "attend/attention/backend.h"
#include "attend/base/error.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend {
namespace {

constexpr Architecture kArchitectures[] = {
    Architecture::kCpu,    Architecture::kTuring,    Architecture::kAmpere,           Architecture::kAda,
    Architecture::kHopper, Architecture::kBlackwell, Architecture::kBlackwellGeforce, Architecture::kAmd};
constexpr DType kCacheDTypes[] = {DType::kF32,    DType::kF16,    DType::kBF16,
                                  DType::kF8E4M3, DType::kF8E5M2, DType::kU8};

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
  for (DType dtype : kCacheDTypes)
    if (dtypes.contains(dtype)) append(list, ", ", kernels::cache_dtype_name(dtype));
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

std::string_view to_string(KvKind kind) { return kind == KvKind::kMha ? "MHA" : "MLA"; }

std::string describe(const Capability& capability) {
  std::string text = "pages " + capability.page_sizes.to_string();
  text += capability.head_dim_rule == HeadDimRule::kExactly ? "; head dims " : "; head dims to ";
  text += std::to_string(capability.head_dims.qk) + "/" + std::to_string(capability.head_dims.v);
  if (capability.head_dim_rule == HeadDimRule::kEqualUpTo) text += ", equal";
  if (capability.wide_heads)
    text += " and " + std::to_string(kWideHeads.qk) + "/" + std::to_string(kWideHeads.v);
  text += "; KV " + to_string(capability.kv_dtypes);

  std::string features;
  const auto feature = [&](bool has, std::string_view name) {
    if (has) append(features, ", ", name);
  };
  feature(capability.window, "window");
  feature(capability.chunk, "chunk");
  feature(capability.logit_cap, "logit cap");
  feature(capability.sinks, "sinks");
  feature(capability.cross, "cross");
  feature(capability.bidirectional, "bidirectional");
  feature(capability.contiguous, "contiguous keys");
  feature(capability.indexer, "only models with an indexer");
  feature(capability.kv_scales, "KV scales");
  feature(!capability.deterministic.empty(), "deterministic");
  feature(capability.graphs, "graphs");
  feature(capability.speculation == Speculation::kChain, "draft chains");
  feature(capability.speculation == Speculation::kTree, "draft trees");
  append(text, "; ", features);

  if (capability.prefill == capability.decode) return text + "; on " + to_string(capability.decode);
  return text + "; prefill on " + to_string(capability.prefill) + "; decode on " +
         to_string(capability.decode);
}

std::string describe(const BackendEntry& entry) {
  if (entry.mha.supports_any_phase() && entry.mha == entry.mla) return "MHA, MLA: " + describe(entry.mha);
  std::string text;
  if (entry.mha.supports_any_phase()) append(text, " | ", "MHA: " + describe(entry.mha));
  if (entry.mla.supports_any_phase()) append(text, " | ", "MLA: " + describe(entry.mla));
  return text;
}

Requirement make_requirement(const ModelGeometry& model) {
  Requirement requirement{.dtype = model.dtype, .kv_dtype = model.kv_dtype};
  requirement.q_heads_per_kv = std::numeric_limits<int>::max();
  for (const AttentionLayer& layer : model.layers) {
    require(layer.num_kv_heads > 0, "layer ", layer.layer_id, " with ", layer.num_kv_heads,
            " KV heads: at least 1");
    if (layer.kind == KvKind::kMla) requirement.kind = KvKind::kMla;
    requirement.num_q_heads = std::max(requirement.num_q_heads, layer.num_q_heads);
    requirement.q_heads_per_kv = std::min(requirement.q_heads_per_kv, layer.num_q_heads / layer.num_kv_heads);
    requirement.head_dims.qk = std::max(requirement.head_dims.qk, layer.head_dim_qk);
    requirement.head_dims.v = std::max(requirement.head_dims.v, layer.head_dim_v);
    requirement.window |= layer.window_left >= 0 || layer.window_right > 0;
    requirement.chunk |= layer.chunk > 0;
    requirement.logit_cap |= layer.logit_cap > 0.0f;
    requirement.sinks |= layer.has_sinks || !layer.sinks.empty();
    requirement.cross |= layer.type == AttentionType::kCross;
    requirement.bidirectional |= layer.bidirectional();
    requirement.indexer |= layer.indexer.top_k > 0;
  }
  return requirement;
}

PageSizes page_sizes_for(const Capability& capability, const Requirement& requirement) {
  PageSizes sizes = capability.page_sizes;
  const bool tree = requirement.speculation == Speculation::kTree;
  if (tree) sizes = sizes.intersect(capability.tree_page_sizes);
  if (tree && requirement.window) sizes = sizes.intersect(capability.window_tree_page_sizes);
  if (requirement.q_heads_per_kv == 1) sizes = sizes.intersect(capability.no_gqa_page_sizes);
  return sizes;
}

}  // namespace attend
