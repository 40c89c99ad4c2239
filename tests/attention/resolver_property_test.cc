// What a resolution promises, for any table, model, machine and options. Who can serve what is judged by
// broken_limits(), which shares no code with the resolver.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "attend/attention/resolver.h"
#include "attend/base/error.h"
#include "tests/attention/any_question.h"
#include "tests/attention/broken_limits.h"

namespace attend::test {
namespace {

constexpr Phase kPhases[] = {Phase::kPrefill, Phase::kDecode};

bool is_called(const BackendEntry& entry, std::string_view name) {
  return entry.name == name || std::ranges::count(entry.aliases, name) > 0;
}

// The name that the user gave for a phase; "": none.
const std::string& option_for(const BackendOptions& options, Phase phase) {
  const std::string& own = phase == Phase::kPrefill ? options.prefill_backend : options.decode_backend;
  return own.empty() ? options.attention_backend : own;
}

// Whether an option for both phases leaves this one open: the backend does only the other, and no option
// overrides it there.
bool leaves_open(const BackendEntry& entry, const BackendOptions& options, Phase phase, KvKind kind) {
  const bool prefill = phase == Phase::kPrefill;
  const Capability& can = entry.capability(kind);
  const Set<Architecture>& mine = prefill ? can.prefill : can.decode;
  const Set<Architecture>& other = prefill ? can.decode : can.prefill;
  return (prefill ? options.prefill_backend : options.decode_backend).empty() &&
         (prefill ? options.decode_backend : options.prefill_backend).empty() && mine.empty() &&
         !other.empty();
}

struct Question {
  std::vector<BackendEntry> table = any_table();
  Requirement needs = any_requirement();
  Hardware hardware = any_hardware();
  BackendOptions options = any_options(table);

  std::optional<Resolution> answer() const {
    try {
      return resolve(needs, hardware, options, table);
    } catch (const Error& error) {
      RC_ASSERT(error.code() == ErrorCode::kUnsupported);
      return std::nullopt;
    }
  }
  // The row that a phase has to use; null: any.
  const BackendEntry* asked_for(Phase phase) const {
    const std::string& name = option_for(options, phase);
    for (const BackendEntry& entry : table)
      if (!name.empty() && is_called(entry, name))
        return leaves_open(entry, options, phase, needs.kind) ? nullptr : &entry;
    return nullptr;
  }
  std::set<std::string> broken(const BackendEntry& entry, Phase phase, std::optional<int> page_size) const {
    return broken_limits(entry, phase, needs, hardware, page_size, asked_for(phase) == &entry);
  }
  bool can_serve(const BackendEntry& entry, Phase phase, int page_size) const {
    const BackendEntry* asked = asked_for(phase);
    return (asked == nullptr || asked == &entry) && broken(entry, phase, page_size).empty();
  }
  // Whether some pair of backends serves both phases as asked, with one page size.
  bool has_an_answer() const {
    for (const BackendEntry& first : table)
      for (const BackendEntry& second : table)
        for (int page_size = 1; page_size <= 256; page_size *= 2)
          if (page_size == options.page_size.value_or(page_size) &&
              can_serve(first, Phase::kPrefill, page_size) && can_serve(second, Phase::kDecode, page_size))
            return true;
    return false;
  }
};

RC_GTEST_PROP(ReasonsAgainstProperty, NameExactlyTheLimitsThatAreBroken, ()) {
  const Question question;
  for (const BackendEntry& entry : question.table)
    for (const Phase phase : kPhases)
      for (const bool is_requested_by_name : {false, true}) {
        const auto reasons = reasons_against(entry, phase, question.needs, question.hardware,
                                             question.options.page_size, is_requested_by_name);
        RC_ASSERT(limits_named(reasons, entry.name, phase) ==
                  broken_limits(entry, phase, question.needs, question.hardware, question.options.page_size,
                                is_requested_by_name));
      }
}

RC_GTEST_PROP(ResolverProperty, AChoiceServesTheModelInBothPhasesWithOnePageSize, ()) {
  const Question question;
  const std::optional<Resolution> answer = question.answer();
  RC_CLASSIFY(answer.has_value(), "resolved");
  if (!answer) return;
  RC_ASSERT(question.broken(*answer->prefill, Phase::kPrefill, answer->page_size).empty());
  RC_ASSERT(question.broken(*answer->decode, Phase::kDecode, answer->page_size).empty());
}

RC_GTEST_PROP(ResolverProperty, NeverOverridesUserOptions, ()) {
  const Question question;
  const std::optional<Resolution> answer = question.answer();
  if (!answer) return;
  RC_CLASSIFY(question.asked_for(Phase::kPrefill) || question.asked_for(Phase::kDecode), "asked for");
  if (question.options.page_size) RC_ASSERT(answer->page_size == *question.options.page_size);
  for (const Phase phase : kPhases) {
    const BackendEntry* asked = question.asked_for(phase);
    const BackendEntry* chosen = phase == Phase::kPrefill ? answer->prefill : answer->decode;
    if (asked != nullptr) RC_ASSERT(chosen == asked);
    // By choice, nothing runs elsewhere than at home.
    if (asked == nullptr)
      RC_ASSERT(chosen->capability(question.needs.kind)
                    .architectures(phase)
                    .contains(question.hardware.architecture));
  }
}

RC_GTEST_PROP(ResolverProperty, RejectsEveryBackendThatCanNotServeForEveryLimitThatItBreaks, ()) {
  const Question question;
  const std::optional<Resolution> answer = question.answer();
  if (!answer) return;
  size_t num_expected = 0;
  for (const Phase phase : kPhases)
    for (const BackendEntry& entry : question.table) {
      if (question.asked_for(phase) == &entry) continue;
      const auto broken = question.broken(entry, phase, question.options.page_size);
      const auto error_text = std::ranges::find_if(answer->rejected, [&](const Rejection& one) {
        return one.backend == entry.name && one.phase == phase;
      });
      RC_ASSERT((error_text != answer->rejected.end()) == !broken.empty());
      if (broken.empty()) continue;
      ++num_expected;
      RC_ASSERT(limits_named(error_text->reasons, entry.name, phase) == broken);
    }
  RC_CLASSIFY(num_expected > 0, "with refusals");
  RC_ASSERT(answer->rejected.size() == num_expected);
}

RC_GTEST_PROP(ResolverProperty, FailsOnlyWhenNoPairServes, ()) {
  Question question;
  if (question.table.size() > 2 && number_below(2) == 0) {
    question.table.resize(2);  // few, so that it gives up often
    question.options = any_options(question.table);
  }
  const bool possible = question.has_an_answer();
  RC_CLASSIFY(possible, "possible");
  RC_ASSERT(question.answer().has_value() == possible);
}

RC_GTEST_PROP(ResolverProperty, ReportsEveryReasonAgainstARejectedOption, ()) {
  const Question question;
  std::set<std::string> against;
  for (const Phase phase : kPhases)
    if (const BackendEntry* asked = question.asked_for(phase))
      for (const std::string& limit : question.broken(*asked, phase, question.options.page_size))
        against.insert(limit);
  RC_CLASSIFY(!against.empty(), "refused");
  if (against.empty()) return;
  try {
    resolve(question.needs, question.hardware, question.options, question.table);
    RC_FAIL("resolved against a limit");
  } catch (const Error& error) {
    const std::string message = error.what();
    RC_ASSERT(!message.starts_with("no attention backend serves"));
    for (const std::string& limit : against) RC_ASSERT(message.find(limit) != std::string::npos);
  }
}

RC_GTEST_PROP(ResolverProperty, ReportsEveryReasonWhenNothingCanServe, ()) {
  Question question;
  if (question.table.size() > 2) question.table.resize(2);
  question.options = {.page_size = question.options.page_size};
  try {
    resolve(question.needs, question.hardware, question.options, question.table);
  } catch (const Error& error) {
    const std::string message = error.what();
    const bool of_page_sizes = message.starts_with("no page size serves both phases");
    RC_CLASSIFY(!of_page_sizes, "gave up");
    for (const BackendEntry& entry : question.table)
      for (const Phase phase : kPhases)
        for (const std::string& limit : question.broken(entry, phase, question.options.page_size))
          RC_ASSERT(of_page_sizes || message.find(limit) != std::string::npos);
  }
}

}  // namespace
}  // namespace attend::test
