#include "attend/cli/options/foreign_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "attend/base/error.h"
#include "attend/base/printable.h"

namespace attend::cli {
namespace {

constexpr size_t kMaxShownValueBytes = 60;

// Returns the words of a text.
std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> found;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) found.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

bool contains(std::string_view list, std::string_view word) {
  return std::ranges::any_of(words(list), [&](std::string_view known) { return known == word; });
}

// Value of a flag of another program, and attend's flag with that meaning.
struct ReplacedValue {
  std::string_view value, own;
};

std::vector<ReplacedValue> replaced_values(const ForeignFlag& flag) {
  std::vector<ReplacedValue> found;
  for (const std::string_view word : words(flag.replaced)) {
    const size_t colon = word.find(':');
    found.push_back({word.substr(0, colon), word.substr(colon + 1)});
  }
  return found;
}

// Returns attend's flag for these values, or "" for harmless values. Rejects other values.
std::string_view replacement(const ForeignFlag& flag, std::string_view name,
                             const std::vector<std::string>& values) {
  if (flag.harmless.empty()) return {};
  std::vector<std::string_view> known = words(flag.harmless);
  for (const ReplacedValue& replaced : replaced_values(flag)) {
    if (values.size() == 1 && values.front() == replaced.value) return replaced.own;
    known.push_back(replaced.value);
  }
  for (const std::string& value : values)
    require(contains(flag.harmless, value), name, " ", elide(value, kMaxShownValueBytes), ": expected ",
            fmt::format("{}", fmt::join(known, " or ")), ": ", flag.sentence);
  return {};
}

constexpr std::string_view kPageStart = R"(# Flags of llama.cpp, vLLM and SGLang

This page lists flags of other programs that attend does not have: which ones it accepts, which ones it replaces by a flag
of its own, and what to use instead of the others. Flags with the same name and meaning are in `attend COMMAND --help`.
Names may be written with `_` instead of `-`. `attend help other-flags` prints this page, and a test compares the two.

- "accepted": the flag has no effect, and a line of the log gives the reason. Other values than those listed are errors.
- "→": attend's flag with the same meaning, which receives the value. After a value: attend's flag for this value.
- "refused": an error with the text below.

Flags that concern GPUs only (`--mem-fraction-static`, `--disable-cuda-graph`, `--cuda-graph-bs`, `--cuda-graph-max-bs`) are
ignored on a CPU, with a warning.
)";

// Returns "; `a`, `b` → `--own`" for the values that are replaced.
std::string replaced_cell(const ForeignFlag& flag) {
  std::string cell;
  const std::vector<ReplacedValue> all = replaced_values(flag);
  for (size_t i = 0; i < all.size(); ++i) {
    cell += fmt::format("{}`{}`", i > 0 && all[i - 1].own == all[i].own ? ", " : "; ", all[i].value);
    if (i + 1 == all.size() || all[i + 1].own != all[i].own) cell += fmt::format(" → `{}`", all[i].own);
  }
  return cell;
}

std::string page_row(const ForeignFlag& flag) {
  std::string names;
  for (const std::string_view name : words(flag.names))
    names += fmt::format("{}`{}`", names.empty() ? "" : ", ", name);
  std::string use;
  switch (flag.use) {
    case ForeignFlagUse::kAccept:
      use = "accepted";
      for (const std::string_view value : words(flag.harmless))
        use += fmt::format("{}`{}`", use == "accepted" ? ": " : ", ", value);
      use += replaced_cell(flag);
      break;
    case ForeignFlagUse::kAlias:
      use =
          fmt::format("→ `{}`", flag.own.ends_with('=') ? flag.own.substr(0, flag.own.size() - 1) : flag.own);
      break;
    case ForeignFlagUse::kRefuse:
      use = "refused";
      break;
  }
  return fmt::format("| {} | {} | {} |\n", names, use, flag.sentence);
}

}  // namespace

FoundForeignFlag find_foreign_flag(std::string_view name) {
  for (const ForeignProgram& program : foreign_flag_table())
    for (const ForeignFlag& flag : program.flags)
      if (contains(flag.names, name)) return {&flag, program.name};
  return {};
}

AdaptedFlag adapt_foreign_flag(const FoundForeignFlag& found, std::string_view name,
                               const std::vector<std::string>& values) {
  const ForeignFlag& flag = *found.flag;
  switch (flag.use) {
    case ForeignFlagUse::kAccept:
      if (const std::string_view own = replacement(flag, name, values); !own.empty())
        return {{std::string(own)}, {}};
      return {{}, fmt::format("{}: no effect; {}", name, flag.sentence)};
    case ForeignFlagUse::kAlias:
      return {{fmt::format("{}{}", flag.own, fmt::join(values, ","))}, {}};
    case ForeignFlagUse::kRefuse:
      break;
  }
  fail(ErrorCode::kInvalidArgument, name, ": a flag of ", found.program, "; in attend: ", flag.sentence);
}

std::string foreign_flags_page() {
  std::string page(kPageStart);
  for (const ForeignProgram& program : foreign_flag_table()) {
    page += fmt::format("\n## {}\n\n| flags | use | reason, or replacement |\n|---|---|---|\n", program.name);
    for (const ForeignFlag& flag : program.flags) page += page_row(flag);
  }
  return page;
}

}  // namespace attend::cli
