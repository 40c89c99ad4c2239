// Flags of llama.cpp, vLLM and SGLang that attend's commands do not have: which ones are accepted, which ones
// are converted to a flag of attend, and what replaces the others.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attend::cli {

enum class ForeignFlagUse : uint8_t {
  kAccept,  // has no effect on attend; one log line
  kAlias,   // has the meaning of a flag of attend, and is replaced by it
  kRefuse,  // an error that names the replacement
};

// Arguments that follow a flag.
enum class FlagValues : uint8_t { kNone, kOne, kOptional, kList };

struct ForeignFlag {
  std::string_view names;  // separated by spaces: "-ngl --gpu-layers"
  ForeignFlagUse use = ForeignFlagUse::kRefuse;
  FlagValues takes = FlagValues::kNone;
  // kAccept: values that have no effect, separated by spaces; other values are refused. Empty: any value.
  std::string_view harmless = {};
  // kAccept: values with the meaning of a flag of attend: "embed:--is-embedding", separated by spaces.
  std::string_view replaced = {};
  // kAlias: the flag of attend and the text before its value: "--device=cuda:". Without a value: "--echo".
  std::string_view own = {};
  std::string_view sentence = {};  // reason, or replacement
};

struct ForeignProgram {
  std::string_view name;
  std::span<const ForeignFlag> flags;
};

// Each name occurs once.
std::span<const ForeignProgram> foreign_flag_table();

struct FoundForeignFlag {
  const ForeignFlag* flag = nullptr;  // nullptr: no such flag
  std::string_view program;
};
FoundForeignFlag find_foreign_flag(std::string_view name);

// Arguments of attend that replace a flag and its values, and the log line for it (empty: none). Throws
// Error(kInvalidArgument) for a refused flag or value.
struct AdaptedFlag {
  std::vector<std::string> arguments;
  std::string note;
};
AdaptedFlag adapt_foreign_flag(const FoundForeignFlag& found, std::string_view name,
                               const std::vector<std::string>& values);

// Returns docs/operating/flags-of-other-programs.md; a test compares the two.
std::string foreign_flags_page();

}  // namespace attend::cli
