#include "attend/cli/commands/support_matrix.h"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "attend/attention/resolver.h"

namespace attend::cli {
namespace {

constexpr std::string_view kIntroduction =
    R"(# Support matrix

Capabilities of all backends, and the rules by which one is chosen. `attend backends --markdown` writes this page from
the capability records of `src/attend/backends/table.cc` and the lists of `src/attend/attention/preference.cc`, from
which attend also chooses; a test fails if the page is outdated.

A backend with the name of a GPU kernel is that kernel's contract (its page sizes, head dims, dtypes and features), run
by attend's kernels. Each can be selected explicitly on a machine without a GPU, where the CPU kernels run it; automatic
selection never does that. The architectures below are those of the contracts. attend's GPU kernels require NVIDIA GPUs
from Ampere on (sm_80); they do not support the Turing and AMD entries of a contract.
)";

constexpr std::array kArchitectures = {
    Architecture::kCpu,    Architecture::kTuring,    Architecture::kAmpere,           Architecture::kAda,
    Architecture::kHopper, Architecture::kBlackwell, Architecture::kBlackwellGeforce, Architecture::kAmd};

std::string row(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string header(const std::vector<std::string>& cells) {
  return row(cells) + row(std::vector<std::string>(cells.size(), "---"));
}

std::string mark(bool has) { return has ? "yes" : "–"; }

// Returns "any", "–", or the list.
std::string on(Set<Architecture> architectures) {
  if (architectures.empty()) return "–";
  return architectures == Set<Architecture>::all() ? "any" : to_string(architectures);
}

std::string page_sizes(const Capability& can) {
  std::string text = can.page_sizes.to_string();
  const auto add = [&](PageSizes sizes, std::string_view condition) {
    if (sizes != PageSizes::all()) text += fmt::format("; {} {}", sizes.to_string(), condition);
  };
  add(can.tree_page_sizes, "with draft trees");
  add(can.window_tree_page_sizes, "with draft trees and a window");
  add(can.no_gqa_page_sizes, "with one query head per KV head");
  if (can.preferred_page_size > 0) text += fmt::format("; prefers {}", can.preferred_page_size);
  return text;
}

std::string head_dims(const Capability& can) {
  const std::string largest =
      fmt::format("{}/{}{}", can.head_dims.qk, can.head_dims.v,
                  can.wide_heads ? fmt::format("; {}/{}", kWideHeads.qk, kWideHeads.v) : "");
  switch (can.head_dim_rule) {
    case HeadDimRule::kUpTo:
      return "to " + largest;
    case HeadDimRule::kEqualUpTo:
      return "equal, to " + largest;
    case HeadDimRule::kExactly:
      return largest;
  }
  return largest;
}

std::string cross(const Capability& can) {
  return can.cross && can.window && !can.cross_with_window ? "without window" : mark(can.cross);
}

std::string describe_hardware(std::span<const BackendEntry> table, KvKind kind) {
  std::string text =
      header({"backend", "prefill on", "decode on", "page sizes", "head dims", "K/V stored as"});
  for (const BackendEntry& entry : table)
    if (const Capability& can = entry.capability(kind); can.supports_any_phase())
      text += row({std::string(entry.name), on(can.prefill), on(can.decode), page_sizes(can), head_dims(can),
                   to_string(can.kv_dtypes)});
  return text;
}

std::string describe_features(std::span<const BackendEntry> table, KvKind kind) {
  const bool mla = kind == KvKind::kMla;
  std::vector<std::string> columns{"backend",
                                   "window",
                                   "chunk",
                                   "logit cap",
                                   "sinks",
                                   "cross",
                                   mla ? "contiguous keys" : "bidirectional",
                                   "drafts",
                                   "deterministic on",
                                   "graphs"};
  if (mla) columns.emplace_back("keys");
  std::string text = header(columns);
  for (const BackendEntry& entry : table)
    if (const Capability& can = entry.capability(kind); can.supports_any_phase()) {
      std::vector<std::string> cells{std::string(entry.name),
                                     mark(can.window),
                                     mark(can.chunk),
                                     mark(can.logit_cap),
                                     mark(can.sinks),
                                     cross(can),
                                     mark(mla ? can.contiguous : can.bidirectional),
                                     std::string(to_string(can.speculation)),
                                     on(can.deterministic),
                                     mark(can.graphs)};
      if (mla) cells.emplace_back(can.indexer ? "selected by an indexer" : "all");
      text += row(cells);
    }
  return text;
}

// Returns, for example, "fa3 (up to draft chains)".
std::string preferred(const Preference& preference) {
  std::vector<std::string> conditions;
  if (preference.from > Speculation::kNone)
    conditions.push_back(fmt::format("from draft {}s", to_string(preference.from)));
  if (preference.up_to == Speculation::kNone) conditions.emplace_back("without drafts");
  if (preference.up_to == Speculation::kChain) conditions.emplace_back("up to draft chains");
  if (preference.only_unequal_head_dims) conditions.emplace_back("unequal head dims");
  if (preference.only_deterministic) conditions.emplace_back("deterministic inference");
  if (conditions.empty()) return std::string(preference.backend);
  return fmt::format("{} ({})", preference.backend, fmt::join(conditions, ", "));
}

std::string choices() {
  std::string text = header({"architecture", "MHA", "MLA"});
  for (const Architecture architecture : kArchitectures) {
    std::vector<std::string> cells{std::string(to_string(architecture))};
    for (const KvKind kind : {KvKind::kMha, KvKind::kMla}) {
      std::vector<std::string> names;
      for (const Preference& preference : preference(kind, architecture))
        names.push_back(preferred(preference));
      cells.push_back(fmt::format("{}", fmt::join(names, ", then ")));
    }
    text += row(cells);
  }
  return text;
}

std::string backends(std::span<const BackendEntry> table) {
  std::string text = header({"backend", "aliases", "description"});
  for (const BackendEntry& entry : table)
    text += row({std::string(entry.name), fmt::format("{}", fmt::join(entry.aliases, ", ")),
                 std::string(entry.summary)});
  return text;
}

}  // namespace

std::string support_matrix(std::span<const BackendEntry> table) {
  std::string text(kIntroduction);
  text += "\n## Backends\n\n" + backends(table);
  for (const auto& [kind, title] : {std::pair{KvKind::kMha, "Multi-head attention (MHA, GQA, MQA)"},
                                    std::pair{KvKind::kMla, "Multi-head latent attention (MLA, absorbed)"}})
    text += fmt::format("\n## {}\n\n{}\n{}", title, describe_hardware(table, kind),
                        describe_features(table, kind));
  text += fmt::format(
      "\n## Automatic selection\n\n"
      "The first backend of the list that supports the model, then any other that supports it.\n"
      "The default page size is the one that the backend prefers, or {}, or another that both "
      "phases support.\n\n{}",
      kDefaultPageSize, choices());
  return text;
}

}  // namespace attend::cli
