// What a resolution promises, for any table, model, machine and wishes.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>

#include "attend/attention/resolver.h"
#include "attend/base/error.h"

namespace attend {
namespace {

constexpr std::array kArchitectures = {Architecture::kCpu, Architecture::kAmpere, Architecture::kHopper,
                                       Architecture::kBlackwell, Architecture::kAmd};
// Names that preference lists know, and two that they do not.
constexpr std::string_view kNames[] = {"cpu",        "triton", "flashinfer", "fa3",
                                       "trtllm_mha", "other",  "another"};

// Numbers [0, end), as likely in the first case as in the last (inRange alone grows with the size).
int number_below(int end) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, end)); }
// True seven times of eight: few limits, so that resolutions succeed often.
bool mostly() { return number_below(8) > 0; }
bool sometimes() { return !mostly(); }

PageSizes any_page_sizes() {
  if (mostly()) return PageSizes::all();
  return PageSizes{1 << number_below(9), 1 << number_below(9)};
}

Set<Architecture> any_architectures() {
  if (mostly()) return Set<Architecture>::all();
  return Set<Architecture>{*rc::gen::elementOf(kArchitectures)};
}

Capability any_capability() {
  Capability can{.prefill = any_architectures(),
                 .decode = any_architectures(),
                 .page_sizes = any_page_sizes(),
                 .tree_page_sizes = any_page_sizes(),
                 .window_tree_page_sizes = any_page_sizes(),
                 .ungrouped_page_sizes = any_page_sizes(),
                 .dtypes = {DType::kBF16},
                 .kv_dtypes = mostly() ? Set<DType>{DType::kBF16, DType::kF8E4M3} : Set<DType>{DType::kBF16}};
  can.preferred_page_size = mostly() ? 0 : 64;
  can.window = mostly();
  can.chunk = mostly();
  can.sinks = mostly();
  can.cross = mostly();
  can.cross_with_window = mostly();
  can.speculation =
      *rc::gen::element(Speculation::kNone, Speculation::kChain, Speculation::kTree, Speculation::kTree);
  can.deterministic = any_architectures();
  if (number_below(4) == 0) can.prefill = {};
  return can;
}

std::vector<BackendEntry> any_table() {
  std::vector<BackendEntry> table;
  for (std::string_view name : kNames) {
    if (sometimes()) continue;
    BackendEntry entry{.name = name};
    if (mostly()) entry.mha = any_capability();
    if (mostly()) entry.mla = any_capability();
    table.push_back(entry);
  }
  return table;
}

Requirement any_requirement() {
  Requirement needs{.kind = mostly() ? KvKind::kMha : KvKind::kMla,
                    .num_q_heads = 32,
                    .q_heads_per_kv = mostly() ? 4 : 1,
                    .head_dims = {128, 128},
                    .dtype = DType::kBF16,
                    .kv_dtype = mostly() ? DType::kBF16 : DType::kF8E4M3};
  needs.window = sometimes();
  needs.chunk = sometimes();
  needs.sinks = sometimes();
  needs.cross = sometimes();
  needs.deterministic = sometimes();
  needs.speculation =
      *rc::gen::element(Speculation::kNone, Speculation::kNone, Speculation::kChain, Speculation::kTree);
  return needs;
}

std::string any_name(const std::vector<BackendEntry>& table) {
  if (table.empty() || number_below(2) == 0) return "";
  return std::string((*rc::gen::elementOf(table)).name);
}

Wishes any_wishes(const std::vector<BackendEntry>& table) {
  Wishes wishes{.attention_backend = any_name(table),
                .prefill_backend = any_name(table),
                .decode_backend = any_name(table),
                .page_size = {}};
  if (sometimes()) wishes.page_size = 1 << number_below(9);
  return wishes;
}

bool asked(const Wishes& wishes, const std::string& own, std::string_view name) {
  return own.empty() ? wishes.attention_backend == name : own == name;
}

void check_resolution(const Resolution& resolution, const Requirement& needs, const Hardware& hardware,
                      const Wishes& wishes) {
  RC_ASSERT(reasons_against(*resolution.prefill, Phase::kPrefill, needs, hardware, resolution.page_size,
                            asked(wishes, wishes.prefill_backend, resolution.prefill->name))
                .empty());
  RC_ASSERT(reasons_against(*resolution.decode, Phase::kDecode, needs, hardware, resolution.page_size,
                            asked(wishes, wishes.decode_backend, resolution.decode->name))
                .empty());
  RC_ASSERT(resolution.page_size == wishes.page_size.value_or(resolution.page_size));
  if (!wishes.prefill_backend.empty()) RC_ASSERT(resolution.prefill->name == wishes.prefill_backend);
  if (!wishes.decode_backend.empty()) RC_ASSERT(resolution.decode->name == wishes.decode_backend);
  // A backend for both phases serves at least one of those that were not overridden.
  if (!wishes.attention_backend.empty() && (wishes.prefill_backend.empty() || wishes.decode_backend.empty()))
    RC_ASSERT(resolution.prefill->name == wishes.attention_backend ||
              resolution.decode->name == wishes.attention_backend);
}

// Whether some pair of backends serves both phases with one page size.
bool some_pair_serves(const std::vector<BackendEntry>& table, const Requirement& needs,
                      const Hardware& hardware, const Wishes& wishes) {
  for (const BackendEntry& first : table)
    for (const BackendEntry& second : table)
      for (int page_size = 1; page_size <= 256; page_size *= 2)
        if ((!wishes.page_size || *wishes.page_size == page_size) &&
            reasons_against(first, Phase::kPrefill, needs, hardware, page_size, false).empty() &&
            reasons_against(second, Phase::kDecode, needs, hardware, page_size, false).empty())
          return true;
  return false;
}

RC_GTEST_PROP(ResolverProperty, NeverContainsABackendThatCanNotServe, ()) {
  const auto table = any_table();
  const Requirement needs = any_requirement();
  const Hardware hardware{.architecture = *rc::gen::elementOf(kArchitectures), .name = "any"};
  const Wishes wishes = any_wishes(table);
  std::optional<Resolution> resolution;
  try {
    resolution = resolve(needs, hardware, wishes, table);
  } catch (const Error& error) {
    RC_ASSERT(error.code() == ErrorCode::kUnsupported);
  }
  RC_CLASSIFY(resolution.has_value(), "resolved");
  if (resolution) check_resolution(*resolution, needs, hardware, wishes);
}

RC_GTEST_PROP(ResolverProperty, GivesUpOnlyWhenNoPairServesAndThenTellsEveryReason, ()) {
  auto table = any_table();
  if (table.size() > 2) table.resize(2);  // few, so that it gives up often
  const Requirement needs = any_requirement();
  const Hardware hardware{.architecture = *rc::gen::elementOf(kArchitectures), .name = "any"};
  Wishes wishes;
  if (sometimes()) wishes.page_size = 1 << number_below(9);
  const bool possible = some_pair_serves(table, needs, hardware, wishes);
  RC_CLASSIFY(possible, "possible");
  try {
    resolve(needs, hardware, wishes, table);
    RC_ASSERT(possible);
  } catch (const Error& error) {
    RC_ASSERT(!possible);
    const std::string message = error.what();
    if (message.starts_with("no page size serves both phases")) return;
    for (const BackendEntry& entry : table)
      for (Phase phase : {Phase::kPrefill, Phase::kDecode})
        for (const std::string& reason :
             reasons_against(entry, phase, needs, hardware, wishes.page_size, false))
          RC_ASSERT(message.find(reason) != std::string::npos);
  }
}

}  // namespace
}  // namespace attend
