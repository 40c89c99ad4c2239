// Reasons why a backend does not support a requirement: one check per field of Capability.
#include <algorithm>
#include <sstream>

#include "attend/attention/resolver.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend {
namespace {

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Collects reasons: "<requirement>: <backend> <limit> (<phase>)".
class Reasons {
 public:
  Reasons(const BackendEntry& entry, Phase phase) : entry_(entry), phase_(phase) {}

  template <class Required, class Limit>
  void add_unless(bool supported, const Required& required, const Limit& limit) {
    if (!supported)
      found_.push_back(text(required, ": ", entry_.name, ' ', limit, " (", to_string(phase_), ')'));
  }
  std::vector<std::string> release() { return std::move(found_); }

 private:
  const BackendEntry& entry_;
  Phase phase_;
  std::vector<std::string> found_;
};

bool supports_head_dims(const Capability& can, HeadDims dims) {
  if (can.wide_heads && dims == kWideHeads) return true;
  if (can.head_dim_rule == HeadDimRule::kExactly) return dims == can.head_dims;
  if (can.head_dim_rule == HeadDimRule::kEqualUpTo && dims.qk != dims.v) return false;
  return dims.qk % 8 == 0 && dims.v % 8 == 0 && dims.qk <= can.head_dims.qk && dims.v <= can.head_dims.v;
}

std::string supported_head_dims(const Capability& can) {
  const std::string largest = text(can.head_dims.qk, '/', can.head_dims.v);
  const std::string wide = can.wide_heads ? text(", or ", kWideHeads.qk, '/', kWideHeads.v) : "";
  if (can.head_dim_rule == HeadDimRule::kExactly) return "supports " + largest + wide;
  if (can.head_dim_rule == HeadDimRule::kUpTo) return "supports multiples of 8 up to " + largest + wide;
  return text("supports equal multiples of 8 up to ", can.head_dims.qk) + wide;
}

void add_geometry_reasons(const Capability& can, const Requirement& needs, Reasons& reasons) {
  const HeadDims dims = needs.head_dims;
  reasons.add_unless(supports_head_dims(can, dims), text("head dims ", dims.qk, '/', dims.v),
                     supported_head_dims(can));
  const bool any = can.num_q_heads[0] == 0;
  reasons.add_unless(any || std::ranges::find(can.num_q_heads, needs.num_q_heads) != can.num_q_heads.end(),
                     text(needs.num_q_heads, " query heads"),
                     text("supports ", can.num_q_heads[0], " and ", can.num_q_heads[1]));
  reasons.add_unless(can.dtypes.contains(needs.dtype), text("dtype ", needs.dtype),
                     "supports " + to_string(can.dtypes));
  const std::string kv_dtype = text("kv_cache_dtype ", kernels::cache_dtype_name(needs.kv_dtype));
  const bool has_kv_dtype = can.kv_dtypes.contains(needs.kv_dtype);
  reasons.add_unless(has_kv_dtype, kv_dtype, "supports " + to_string(can.kv_dtypes));
  constexpr HeadDims kScaled{kernels::kScaledRow.width(), kernels::kScaledRow.rank};
  if (has_kv_dtype && needs.kv_dtype == DType::kU8)
    reasons.add_unless(dims == kScaled, text(kv_dtype, " with head dims ", dims.qk, '/', dims.v),
                       text("supports it for ", kScaled.qk, '/', kScaled.v));
}

void add_feature_reasons(const Capability& can, const Requirement& needs, Reasons& reasons) {
  constexpr std::string_view kUnsupported = "does not support this";
  reasons.add_unless(can.kv_scales || !needs.kv_scales, "KV scales", kUnsupported);
  reasons.add_unless(can.window || !needs.window, "sliding window", kUnsupported);
  reasons.add_unless(can.chunk || !needs.chunk, "chunked local attention", kUnsupported);
  reasons.add_unless(can.logit_cap || !needs.logit_cap, "logit cap", kUnsupported);
  reasons.add_unless(can.sinks || !needs.sinks, "attention sinks", kUnsupported);
  reasons.add_unless(can.cross || !needs.cross, "cross attention", kUnsupported);
  if (can.cross && can.window)
    reasons.add_unless(can.cross_with_window || !needs.cross || !needs.window,
                       "cross attention and a sliding window", "supports only one of them");
  reasons.add_unless(can.bidirectional || !needs.bidirectional, "bidirectional attention", kUnsupported);
  reasons.add_unless(can.indexer || !needs.indexer, "keys selected by an indexer", "attends to all keys");
  reasons.add_unless(!can.indexer || needs.indexer, "attention to all keys",
                     "serves only models with an indexer");
  reasons.add_unless(needs.speculation <= can.speculation, text("draft ", to_string(needs.speculation)),
                     text("supports ", to_string(can.speculation)));
}

// On the CPU all contracts run on the same kernels: a contract that is deterministic on any architecture is
// deterministic there.
void add_determinism_reasons(const Capability& can, const Requirement& needs, Architecture architecture,
                             bool contract_on_cpu, Reasons& reasons) {
  if (!needs.deterministic) return;
  if (can.deterministic.empty())
    reasons.add_unless(false, "deterministic inference", "does not support this");
  else if (!contract_on_cpu)
    reasons.add_unless(can.deterministic.contains(architecture),
                       text("deterministic inference on ", to_string(architecture)),
                       text("supports it for ", to_string(needs.kind), " on ", to_string(can.deterministic)));
}

void add_page_reasons(const Capability& can, const Requirement& needs, int page_size, Reasons& reasons) {
  const bool tree = needs.speculation == Speculation::kTree;
  std::string required = text("page_size ", page_size);
  if (can.page_sizes.contains(page_size)) {  // a condition on page sizes excludes it
    if (tree && !can.tree_page_sizes.contains(page_size))
      required += " with draft trees";
    else if (tree && needs.window && !can.window_tree_page_sizes.contains(page_size))
      required += " with draft trees and a sliding window";
    else
      required += " with one query head per KV head";
  }
  const PageSizes sizes = page_sizes_for(can, needs);
  reasons.add_unless(sizes.contains(page_size), required, "needs " + sizes.to_string());
}

}  // namespace

std::vector<std::string> rejection_reasons(const BackendEntry& entry, Phase phase,
                                           const Requirement& requirement, const Hardware& hardware,
                                           std::optional<int> page_size, bool is_requested_by_name) {
  const Capability& can = entry.capability(requirement.kind);
  const std::string_view kind = to_string(requirement.kind);
  const Architecture architecture = hardware.architecture;
  Reasons reasons(entry, phase);
  if (!can.supports_any_phase()) {
    reasons.add_unless(false, kind,
                       requirement.kind == KvKind::kMla ? "supports MHA only" : "supports MLA only");
    return reasons.release();
  }
  const bool contract_on_cpu = is_requested_by_name && architecture == Architecture::kCpu;
  const Set<Architecture>& architectures = can.architectures(phase);
  if (architectures.empty())
    reasons.add_unless(false, kind,
                       phase == Phase::kPrefill ? "supports decode only" : "supports prefill only");
  else if (!contract_on_cpu)
    reasons.add_unless(architectures.contains(architecture), to_string(architecture),
                       text("runs ", kind, " on ", to_string(architectures)));
  add_geometry_reasons(can, requirement, reasons);
  add_feature_reasons(can, requirement, reasons);
  add_determinism_reasons(can, requirement, architecture, contract_on_cpu, reasons);
  if (phase == Phase::kDecode)
    reasons.add_unless(can.graphs || !requirement.graphs, "CUDA graphs", "does not support this");
  if (page_size) add_page_reasons(can, requirement, *page_size, reasons);
  return reasons.release();
}

}  // namespace attend
