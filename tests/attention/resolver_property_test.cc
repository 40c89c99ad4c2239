// Guarantees of a resolution for any table, model, machine and options. Capabilities are checked by
// broken_limits(), which shares no code with the resolver.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "attend/attention/resolver.h"
#include "attend/base/error.h"
#include "tests/attention/broken_limits.h"
#include "tests/attention/random_problem.h"

namespace attend::test {
namespace {

constexpr Phase kPhases[] = {Phase::kPrefill, Phase::kDecode};

bool is_called(const BackendEntry& entry, std::string_view name) {
  return entry.name == name || std::ranges::count(entry.aliases, name) > 0;
}

// Name that the user requested for a phase, or "".
const std::string& option_for(const BackendOptions& options, Phase phase) {
  const std::string& own = phase == Phase::kPrefill ? options.prefill_backend : options.decode_backend;
  return own.empty() ? options.attention_backend : own;
}

// Returns true if an option for both phases does not apply to this phase, because the backend supports only
// the other phase and no option overrides it there.
bool does_not_apply(const BackendEntry& entry, const BackendOptions& options, Phase phase, KvKind kind) {
  const bool prefill = phase == Phase::kPrefill;
  const Capability& can = entry.capability(kind);
  const Set<Architecture>& mine = prefill ? can.prefill : can.decode;
  const Set<Architecture>& other = prefill ? can.decode : can.prefill;
  return (prefill ? options.prefill_backend : options.decode_backend).empty() &&
         (prefill ? options.decode_backend : options.prefill_backend).empty() && mine.empty() &&
         !other.empty();
}

struct Problem {
  std::vector<BackendEntry> table = any_table();
  Requirement needs = any_requirement();
  Hardware hardware = any_hardware();
  BackendOptions options = any_options(table);

  std::optional<Resolution> resolution() const {
    try {
      return resolve(needs, hardware, options, table);
    } catch (const Error& error) {
      RC_ASSERT(error.code() == ErrorCode::kUnsupported);
      return std::nullopt;
    }
  }
  // Backend that the options require for a phase; null: any.
  const BackendEntry* requested_backend(Phase phase) const {
    const std::string& name = option_for(options, phase);
    for (const BackendEntry& entry : table)
      if (!name.empty() && is_called(entry, name))
        return does_not_apply(entry, options, phase, needs.kind) ? nullptr : &entry;
    return nullptr;
  }
  std::set<std::string> broken(const BackendEntry& entry, Phase phase, std::optional<int> page_size) const {
    return broken_limits(entry, phase, needs, hardware, page_size, requested_backend(phase) == &entry);
  }
  bool can_serve(const BackendEntry& entry, Phase phase, int page_size) const {
    const BackendEntry* requested = requested_backend(phase);
    return (requested == nullptr || requested == &entry) && broken(entry, phase, page_size).empty();
  }
  // Returns true if some pair of backends serves both phases as requested, with one page size.
  bool is_solvable() const {
    for (const BackendEntry& first : table)
      for (const BackendEntry& second : table)
        for (int page_size = 1; page_size <= 256; page_size *= 2)
          if (page_size == options.page_size.value_or(page_size) &&
              can_serve(first, Phase::kPrefill, page_size) && can_serve(second, Phase::kDecode, page_size))
            return true;
    return false;
  }
};

RC_GTEST_PROP(ReasonsAgainstProperty, NamesExactlyTheExceededLimits, ()) {
  const Problem problem;
  for (const BackendEntry& entry : problem.table)
    for (const Phase phase : kPhases)
      for (const bool is_requested_by_name : {false, true}) {
        const auto reasons = rejection_reasons(entry, phase, problem.needs, problem.hardware,
                                               problem.options.page_size, is_requested_by_name);
        RC_ASSERT(limits_named(reasons, entry.name, phase) ==
                  broken_limits(entry, phase, problem.needs, problem.hardware, problem.options.page_size,
                                is_requested_by_name));
      }
}

RC_GTEST_PROP(ResolverProperty, ResolutionServesBothPhasesWithOnePageSize, ()) {
  const Problem problem;
  const std::optional<Resolution> resolution = problem.resolution();
  RC_CLASSIFY(resolution.has_value(), "resolved");
  if (!resolution) return;
  RC_ASSERT(problem.broken(*resolution->prefill, Phase::kPrefill, resolution->page_size).empty());
  RC_ASSERT(problem.broken(*resolution->decode, Phase::kDecode, resolution->page_size).empty());
}

RC_GTEST_PROP(ResolverProperty, NeverOverridesUserOptions, ()) {
  const Problem problem;
  const std::optional<Resolution> resolution = problem.resolution();
  if (!resolution) return;
  RC_CLASSIFY(problem.requested_backend(Phase::kPrefill) || problem.requested_backend(Phase::kDecode),
              "requested");
  if (problem.options.page_size) RC_ASSERT(resolution->page_size == *problem.options.page_size);
  for (const Phase phase : kPhases) {
    const BackendEntry* requested = problem.requested_backend(phase);
    const BackendEntry* chosen = phase == Phase::kPrefill ? resolution->prefill : resolution->decode;
    if (requested != nullptr) RC_ASSERT(chosen == requested);
    // Backends that were not requested run only on their own architectures.
    if (requested == nullptr)
      RC_ASSERT(chosen->capability(problem.needs.kind)
                    .architectures(phase)
                    .contains(problem.hardware.architecture));
  }
}

RC_GTEST_PROP(ResolverProperty, ListsEveryExceededLimitOfRejectedBackends, ()) {
  const Problem problem;
  const std::optional<Resolution> resolution = problem.resolution();
  if (!resolution) return;
  size_t num_expected = 0;
  for (const Phase phase : kPhases)
    for (const BackendEntry& entry : problem.table) {
      if (problem.requested_backend(phase) == &entry) continue;
      const auto broken = problem.broken(entry, phase, problem.options.page_size);
      const auto error_text = std::ranges::find_if(resolution->rejected, [&](const Rejection& one) {
        return one.backend == entry.name && one.phase == phase;
      });
      RC_ASSERT((error_text != resolution->rejected.end()) == !broken.empty());
      if (broken.empty()) continue;
      ++num_expected;
      RC_ASSERT(limits_named(error_text->reasons, entry.name, phase) == broken);
    }
  RC_CLASSIFY(num_expected > 0, "with rejections");
  RC_ASSERT(resolution->rejected.size() == num_expected);
}

RC_GTEST_PROP(ResolverProperty, FailsOnlyIfNoPairServes, ()) {
  Problem problem;
  if (problem.table.size() > 2 && uniform_below(2) == 0) {
    problem.table.resize(2);  // few, so that resolution often fails
    problem.options = any_options(problem.table);
  }
  const bool possible = problem.is_solvable();
  RC_CLASSIFY(possible, "possible");
  RC_ASSERT(problem.resolution().has_value() == possible);
}

RC_GTEST_PROP(ResolverProperty, ReportsEveryReasonAgainstARejectedOption, ()) {
  const Problem problem;
  std::set<std::string> against;
  for (const Phase phase : kPhases)
    if (const BackendEntry* requested = problem.requested_backend(phase))
      for (const std::string& limit : problem.broken(*requested, phase, problem.options.page_size))
        against.insert(limit);
  RC_CLASSIFY(!against.empty(), "rejected");
  if (against.empty()) return;
  try {
    resolve(problem.needs, problem.hardware, problem.options, problem.table);
    RC_FAIL("resolved against a limit");
  } catch (const Error& error) {
    const std::string message = error.what();
    RC_ASSERT(message.find("no attention backend supports") == std::string::npos);
    for (const std::string& limit : against) RC_ASSERT(message.find(limit) != std::string::npos);
  }
}

RC_GTEST_PROP(ResolverProperty, ReportsEveryReasonIfNoBackendCanServe, ()) {
  Problem problem;
  if (problem.table.size() > 2) problem.table.resize(2);
  problem.options = {.page_size = problem.options.page_size};
  try {
    resolve(problem.needs, problem.hardware, problem.options, problem.table);
  } catch (const Error& error) {
    const std::string message = error.what();
    const bool of_page_sizes = message.starts_with("no page size is supported in both phases");
    RC_CLASSIFY(!of_page_sizes, "gave up");
    for (const BackendEntry& entry : problem.table)
      for (const Phase phase : kPhases)
        for (const std::string& limit : problem.broken(entry, phase, problem.options.page_size))
          RC_ASSERT(of_page_sizes || message.find(limit) != std::string::npos);
  }
}

}  // namespace
}  // namespace attend::test
