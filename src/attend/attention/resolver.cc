#include "attend/attention/resolver.h"

#include <algorithm>
#include <sstream>

#include "attend/base/error.h"
#include "attend/kv/kv_pool.h"

namespace attend {
namespace {

// Collects reasons: "<what the requirement has>: <backend> <what it takes> (<phase>)".
class Reasons {
 public:
  Reasons(const BackendEntry& entry, Phase phase) : entry_(entry), phase_(phase) {}

  template <class What, class Takes>
  void unless(bool served, const What& what, const Takes& takes) {
    if (served) return;
    std::ostringstream text;
    text << what << ": " << entry_.name << ' ' << takes << " (" << to_string(phase_) << ')';
    found_.push_back(text.str());
  }
  std::vector<std::string> take() { return std::move(found_); }

 private:
  const BackendEntry& entry_;
  Phase phase_;
  std::vector<std::string> found_;
};

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

void add_geometry_reasons(const Capability& can, const Requirement& needs, Reasons& reasons) {
  const bool mla = needs.kind == KvKind::kMla;
  reasons.unless(can.kinds.contains(needs.kind), mla ? "MLA" : "MHA",
                 mla ? "serves MHA only" : "serves MLA only");
  if (mla) {
    const bool any = can.mla_num_q_heads[0] == 0;
    reasons.unless(
        any || std::ranges::find(can.mla_num_q_heads, needs.num_q_heads) != can.mla_num_q_heads.end(),
        text(needs.num_q_heads, " query heads"),
        text("has ", can.mla_num_q_heads[0], " and ", can.mla_num_q_heads[1]));
  } else {
    const int largest = std::max(needs.head_dim_qk, needs.head_dim_v);
    reasons.unless(largest <= can.max_head_dim, text("head dim ", largest),
                   text("goes to ", can.max_head_dim));
    reasons.unless(can.unequal_head_dims || needs.head_dim_qk == needs.head_dim_v,
                   text("head dims ", needs.head_dim_qk, "/", needs.head_dim_v), "needs equal ones");
  }
  reasons.unless(can.dtypes.contains(needs.dtype), text("dtype ", needs.dtype),
                 "has " + to_string(can.dtypes));
  reasons.unless(can.kv_dtypes.contains(needs.kv_dtype), text("kv_cache_dtype ", needs.kv_dtype),
                 "has " + to_string(can.kv_dtypes));
}

void add_feature_reasons(const Capability& can, const Requirement& needs, Reasons& reasons) {
  const std::string_view none = "has none";
  reasons.unless(can.kv_scales || !needs.kv_scales, "KV scales", none);
  reasons.unless(can.window || !needs.window, "sliding window", none);
  reasons.unless(can.chunk || !needs.chunk, "chunked local attention", none);
  reasons.unless(can.logit_cap || !needs.logit_cap, "logit cap", none);
  reasons.unless(can.sinks || !needs.sinks, "attention sinks", none);
  reasons.unless(can.cross || !needs.cross, "cross attention", none);
  reasons.unless(can.bidirectional || !needs.bidirectional, "bidirectional attention", none);
  reasons.unless(needs.speculation <= can.speculation, text("draft ", to_string(needs.speculation)),
                 text("takes ", to_string(can.speculation)));
  reasons.unless(!needs.deterministic || can.deterministic.contains(needs.kind), "deterministic inference",
                 none);
  reasons.unless(can.graphs || !needs.graphs, "CUDA graphs", "can not be captured");
}

// The page sizes that serve a requirement.
PageSizes page_sizes(const Capability& can, const Requirement& needs) {
  return needs.speculation == Speculation::kTree ? can.page_sizes.intersect(can.tree_page_sizes)
                                                 : can.page_sizes;
}

int choose_page_size(PageSizes sizes) {
  for (int size : {kDefaultPageSize, 64, 32, 128, 256, 8, 4, 2, 1})
    if (sizes.contains(size)) return size;
  return 0;
}

// A backend that may serve a phase.
struct Candidate {
  const BackendEntry* entry;
  bool asked_by_name;
};

std::string list_names(std::span<const BackendEntry> table) {
  std::string names;
  for (const BackendEntry& entry : table) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

std::string join(const std::vector<std::string>& reasons) {
  std::string joined;
  for (const std::string& reason : reasons) joined += (joined.empty() ? "" : "; ") + reason;
  return joined;
}

// The name that the user gave for a phase; empty: none.
const std::string& wish_for(const Wishes& wishes, Phase phase) {
  const std::string& own = phase == Phase::kPrefill ? wishes.prefill_backend : wishes.decode_backend;
  return own.empty() ? wishes.attention_backend : own;
}

std::vector<Candidate> candidates(Phase phase, const Requirement& requirement, const Hardware& hardware,
                                  const Wishes& wishes, std::span<const BackendEntry> table) {
  if (const std::string& name = wish_for(wishes, phase); !name.empty()) {
    const BackendEntry* entry = find_backend(table, name);
    require(entry != nullptr, "attention backend '", name, "': expected one of ", list_names(table));
    const auto reasons = reasons_against(*entry, phase, requirement, hardware, wishes.page_size, true);
    if (!reasons.empty()) fail(ErrorCode::kUnsupported, join(reasons));
    return {{entry, true}};
  }
  std::vector<Candidate> found;
  for (const Preference& preferred : preference(phase, requirement.kind, hardware.architecture)) {
    if (requirement.speculation > preferred.up_to) continue;
    if (preferred.only_unequal_head_dims && requirement.head_dim_qk == requirement.head_dim_v) continue;
    const BackendEntry* entry = find_backend(table, preferred.backend);
    if (entry != nullptr &&
        reasons_against(*entry, phase, requirement, hardware, wishes.page_size, false).empty())
      found.push_back({entry, false});
  }
  return found;
}

std::vector<Refusal> refusals(const Requirement& requirement, const Hardware& hardware, const Wishes& wishes,
                              std::span<const BackendEntry> table) {
  std::vector<Refusal> found;
  for (const BackendEntry& entry : table)
    for (Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      auto reasons = reasons_against(entry, phase, requirement, hardware, wishes.page_size, false);
      if (!reasons.empty()) found.push_back({entry.name, phase, std::move(reasons)});
    }
  return found;
}

std::string explain(const Candidate& chosen, const Hardware& hardware) {
  std::string why(chosen.entry->name);
  if (!chosen.asked_by_name)
    return why + ": first choice for " + std::string(to_string(hardware.architecture)) +
           " that serves this model";
  why += ": asked for";
  const bool elsewhere = !chosen.entry->capability.decode.contains(hardware.architecture);
  if (hardware.architecture == Architecture::kCpu && elsewhere)
    why += "; its contract runs over the CPU kernels";
  return why;
}

}  // namespace

const BackendEntry* find_backend(std::span<const BackendEntry> table, std::string_view name) {
  for (const BackendEntry& entry : table)
    if (entry.name == name || std::ranges::find(entry.aliases, name) != entry.aliases.end()) return &entry;
  return nullptr;
}

std::vector<std::string> reasons_against(const BackendEntry& entry, Phase phase,
                                         const Requirement& requirement, const Hardware& hardware,
                                         std::optional<int> page_size, bool asked_by_name) {
  const Capability& can = entry.capability;
  Reasons reasons(entry, phase);
  const Set<Architecture> architectures = phase == Phase::kPrefill ? can.prefill : can.decode;
  const bool contract_on_cpu = asked_by_name && hardware.architecture == Architecture::kCpu;
  if (contract_on_cpu)
    reasons.unless(!architectures.empty(), to_string(phase), "does not do this");
  else
    reasons.unless(architectures.contains(hardware.architecture), to_string(hardware.architecture),
                   "runs on " + to_string(architectures));
  if (!contract_on_cpu && requirement.kind == KvKind::kMla && can.kinds.contains(KvKind::kMla))
    reasons.unless(can.mla_architectures.contains(hardware.architecture), "MLA",
                   "runs it on " + to_string(can.mla_architectures.intersect(architectures)));
  add_geometry_reasons(can, requirement, reasons);
  add_feature_reasons(can, requirement, reasons);
  const PageSizes sizes = page_sizes(can, requirement);
  if (page_size)
    reasons.unless(sizes.contains(*page_size), text("page_size ", *page_size), "needs " + sizes.to_string());
  return reasons.take();
}

Resolution resolve(const Requirement& requirement, const Hardware& hardware, const Wishes& wishes,
                   std::span<const BackendEntry> table) {
  if (wishes.page_size) check_page_size(*wishes.page_size);
  const auto prefill = candidates(Phase::kPrefill, requirement, hardware, wishes, table);
  const auto decode = candidates(Phase::kDecode, requirement, hardware, wishes, table);
  Resolution resolution;
  resolution.refusals = refusals(requirement, hardware, wishes, table);
  for (const Candidate& first : prefill)
    for (const Candidate& second : decode) {
      const PageSizes both = page_sizes(first.entry->capability, requirement)
                                 .intersect(page_sizes(second.entry->capability, requirement));
      if (both.empty()) continue;
      resolution.prefill = first.entry;
      resolution.decode = second.entry;
      resolution.page_size = wishes.page_size.value_or(choose_page_size(both));
      resolution.why = explain(first, hardware);
      if (first.entry != second.entry)
        resolution.why += " (prefill); " + explain(second, hardware) + " (decode)";
      return resolution;
    }
  if (!prefill.empty() && !decode.empty())
    fail(ErrorCode::kUnsupported, "no page size serves both phases: ", prefill[0].entry->name, " needs ",
         page_sizes(prefill[0].entry->capability, requirement).to_string(), " (prefill), ",
         decode[0].entry->name, " needs ", page_sizes(decode[0].entry->capability, requirement).to_string(),
         " (decode)");
  std::string all;
  for (const Refusal& refusal : resolution.refusals) all += "\n  " + join(refusal.reasons);
  fail(ErrorCode::kUnsupported, "no attention backend serves this model on ",
       to_string(hardware.architecture), ":", all);
}

}  // namespace attend
