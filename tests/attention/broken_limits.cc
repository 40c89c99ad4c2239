#include "tests/attention/broken_limits.h"

#include <algorithm>
#include <stdexcept>

namespace attend::test {
namespace {

bool supports_head_dims(const Capability& can, HeadDims dims) {
  const bool within = dims.qk <= can.head_dims.qk && dims.v <= can.head_dims.v;
  const bool multiples = dims.qk % 8 == 0 && dims.v % 8 == 0;
  switch (can.head_dim_rule) {
    case HeadDimRule::kUpTo:
      return within && multiples;
    case HeadDimRule::kEqualUpTo:
      return within && multiples && dims.qk == dims.v;
    case HeadDimRule::kExactly:
      return dims == can.head_dims;
  }
  return false;
}

bool supports_page_size(const Capability& can, const Requirement& needs, int size) {
  const bool tree = needs.speculation == Speculation::kTree;
  return can.page_sizes.contains(size) && (!tree || can.tree_page_sizes.contains(size)) &&
         (!tree || !needs.window || can.window_tree_page_sizes.contains(size)) &&
         (needs.q_heads_per_kv != 1 || can.no_gqa_page_sizes.contains(size));
}

// Removes a condition: "page_size 16 with draft trees" -> "page_size 16".
std::string limit_name(const std::string& subject) {
  for (std::string_view ending : {" with ", " on "})
    if (const size_t at = subject.find(ending); at != std::string::npos) return subject.substr(0, at);
  return subject;
}

}  // namespace

std::set<std::string> broken_limits(const BackendEntry& entry, Phase phase, const Requirement& needs,
                                    const Hardware& hardware, std::optional<int> page_size,
                                    bool is_requested_by_name) {
  const bool mla = needs.kind == KvKind::kMla;
  const Capability& can = mla ? entry.mla : entry.mha;
  const Set<Architecture> runs_on = phase == Phase::kPrefill ? can.prefill : can.decode;
  const std::string kind = mla ? "MLA" : "MHA";
  if (can.prefill.empty() && can.decode.empty()) return {kind};

  std::set<std::string> broken;
  const auto limit = [&](bool holds, std::string words) {
    if (!holds) broken.insert(std::move(words));
  };
  const bool over_cpu_kernels = is_requested_by_name && hardware.architecture == Architecture::kCpu;
  limit(!runs_on.empty(), kind);
  limit(runs_on.empty() || over_cpu_kernels || runs_on.contains(hardware.architecture),
        std::string(to_string(hardware.architecture)));
  limit(supports_head_dims(can, needs.head_dims),
        "head dims " + std::to_string(needs.head_dims.qk) + "/" + std::to_string(needs.head_dims.v));
  limit(can.num_q_heads == std::array<int, 2>{} || std::ranges::count(can.num_q_heads, needs.num_q_heads) > 0,
        std::to_string(needs.num_q_heads) + " query heads");
  limit(can.dtypes.contains(needs.dtype), "dtype " + std::string(to_string(needs.dtype)));
  limit(can.kv_dtypes.contains(needs.kv_dtype), "kv_cache_dtype " + std::string(to_string(needs.kv_dtype)));
  limit(!needs.kv_scales || can.kv_scales, "KV scales");
  limit(!needs.window || can.window, "sliding window");
  limit(!needs.chunk || can.chunk, "chunked local attention");
  limit(!needs.logit_cap || can.logit_cap, "logit cap");
  limit(!needs.sinks || can.sinks, "attention sinks");
  limit(!needs.cross || can.cross, "cross attention");
  // A backend without one of the two features is rejected because of that feature.
  if (can.cross && can.window)
    limit(!needs.cross || !needs.window || can.cross_with_window, "cross attention and a sliding window");
  limit(!needs.bidirectional || can.bidirectional, "bidirectional attention");
  limit(!needs.indexer || can.indexer, "keys selected by an indexer");
  limit(needs.indexer || !can.indexer, "attention to all keys");
  limit(static_cast<int>(needs.speculation) <= static_cast<int>(can.speculation),
        "draft " + std::string(to_string(needs.speculation)));
  limit(!needs.deterministic || can.deterministic.contains(hardware.architecture) ||
            (over_cpu_kernels && !can.deterministic.empty()),
        "deterministic inference");
  limit(phase == Phase::kPrefill || !needs.graphs || can.graphs, "CUDA graphs");
  if (page_size) limit(supports_page_size(can, needs, *page_size), "page_size " + std::to_string(*page_size));
  return broken;
}

std::set<std::string> limits_named(const std::vector<std::string>& reasons, std::string_view backend,
                                   Phase phase) {
  std::set<std::string> named;
  const std::string ending = " (" + std::string(to_string(phase)) + ")";
  for (const std::string& reason : reasons) {
    const std::string who = ": " + std::string(backend) + " ";
    const size_t at = reason.find(who);
    if (at == std::string::npos || !reason.ends_with(ending))
      throw std::runtime_error("a reason without backend or phase: " + reason);
    if (!named.insert(limit_name(reason.substr(0, at))).second)
      throw std::runtime_error("a second reason of the same limit: " + reason);
  }
  return named;
}

}  // namespace attend::test
