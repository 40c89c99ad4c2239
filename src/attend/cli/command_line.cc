#include "attend/cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/printable.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/options/foreign_flags.h"

namespace attend::cli {
namespace {

constexpr size_t kMaxArgumentBytes = 60;

// Returns the edit distance: insertions, deletions and replacements of characters.
size_t distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// Returns "expected one of generate, backends, bench".
std::string known_commands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : commands_of(app)) names += (names.empty() ? "" : ", ") + command->get_name();
  return "expected one of " + names;
}

// Returns " (temperature?)" for the name most similar to `name`, if there is a similar one.
std::string guess(std::string_view name, const std::vector<std::string>& known) {
  constexpr size_t kMaxDistance = 2;
  if (name.size() > kMaxArgumentBytes || known.empty()) return {};
  const auto nearest =
      std::ranges::min_element(known, {}, [&](const std::string& a) { return distance(name, a); });
  const bool is_similar =
      distance(name, *nearest) <= kMaxDistance && distance(name, *nearest) < name.size() / 2;
  return is_similar ? fmt::format(" ({}?)", *nearest) : "";
}

const CLI::App* child_command(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) {
    if (command->get_name() == name) return command;
    names.push_back(command->get_name());
  }
  if (names.empty())
    fail(ErrorCode::kInvalidArgument, "command ", elide(name, kMaxArgumentBytes), ": ", full_name(app),
         " has no commands (see --help)");
  fail(ErrorCode::kInvalidArgument, "command ", elide(name, kMaxArgumentBytes), ": ", known_commands(app),
       guess(name, names), " (see --help)");
}

bool is_flag(std::string_view argument) { return argument.size() > 1 && argument.starts_with('-'); }

const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options())
    if (is_flag(name) && option->check_name(name)) return option;
  return nullptr;
}

// Appends the names of the commands below `app` that have this flag.
void find_commands_with(const CLI::App& app, const std::string& flag, std::vector<std::string>& names) {
  if (find_option(app, flag) != nullptr) names.push_back(full_name(app));
  for (const CLI::App* command : commands_of(app)) find_commands_with(*command, flag, names);
}

const CLI::App& root(const CLI::App& command) {
  return command.get_parent() == nullptr ? command : root(*command.get_parent());
}

[[noreturn]] void reject_unknown_flag(const CLI::App& command, const std::string& name) {
  const std::string shown = elide(name, kMaxArgumentBytes);
  std::vector<std::string> others, known;
  find_commands_with(root(command), name, others);
  if (!others.empty())
    fail(ErrorCode::kInvalidArgument, shown, ": a flag of ", fmt::format("{}", fmt::join(others, ", ")),
         ", not of ", full_name(command));
  for (const CLI::Option* option : command.get_options())
    for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
  fail(ErrorCode::kInvalidArgument, "argument ", shown, ": unknown flag", guess(name, known),
       " (see --help)");
}

// Walks over the arguments of one command.
class FlagReader {
 public:
  FlagReader(const CLI::App& command, const std::vector<std::string>& arguments, size_t first,
             CommandLine& line)
      : command_(command), arguments_(arguments), next_(first), line_(line) {}

  void read_all() {
    while (next_ < arguments_.size()) {
      if (arguments_[next_] == "--") break;  // the others are values
      read_one();
    }
    line_.arguments.insert(line_.arguments.end(), arguments_.begin() + static_cast<ptrdiff_t>(next_),
                           arguments_.end());
  }

 private:
  void read_one() {
    const std::string& argument = arguments_[next_++];
    if (!is_flag(argument)) return line_.arguments.push_back(argument);
    const size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    const std::string value = equals == argument.npos ? "" : argument.substr(equals);
    const CLI::Option* option = find_option(command_, name);
    if (option == nullptr && name.starts_with("--")) {  // vLLM accepts _ for -
      std::ranges::replace(name, '_', '-');
      option = find_option(command_, name);
    }
    if (option != nullptr) {
      line_.arguments.push_back(name + value);
      if (option->get_items_expected_min() > 0 && value.empty()) keep_value(name);
    } else if (const FoundForeignFlag found = find_foreign_flag(name); found.flag != nullptr) {
      adapt(found, name, value);
    } else {
      // A short flag may be followed by its value ("-n8"). "-h" may not, since CLI11 would print help for
      // "-hello".
      const bool is_short = !name.starts_with("--") && !name.starts_with("-h");
      if (!is_short || find_option(command_, name.substr(0, 2)) == nullptr)
        reject_unknown_flag(command_, name);
      line_.arguments.push_back(argument);
    }
  }

  // Checks that the next argument, if there is one, is not a flag of the command.
  void check_value(const std::string& name) const {
    const std::string& value = arguments_[next_];
    require(find_option(command_, value) == nullptr, name, ": expected a value, but ", value,
            " is a flag (as a value: ", name, "=", value, ")");
  }

  void keep_value(const std::string& name) {
    if (next_ == arguments_.size()) return;  // CLI11 reports it
    check_value(name);
    line_.arguments.push_back(arguments_[next_++]);
  }

  // `attached`: "=value", or empty.
  void adapt(const FoundForeignFlag& found, const std::string& name, const std::string& attached) {
    const ForeignFlag& flag = *found.flag;
    std::vector<std::string> values;
    if (flag.use != ForeignFlagUse::kRefuse) values = read_values(flag, name, attached);
    AdaptedFlag adapted = adapt_foreign_flag(found, name, values);
    for (const std::string& argument : adapted.arguments) {
      const std::string own = argument.substr(0, argument.find('='));
      require(find_option(command_, own) != nullptr, name, ": in attend ", own, ", which ",
              full_name(command_), " does not have");
    }
    std::ranges::move(adapted.arguments, std::back_inserter(line_.arguments));
    if (!adapted.note.empty()) line_.notes.push_back(std::move(adapted.note));
  }

  std::vector<std::string> read_values(const ForeignFlag& flag, const std::string& name,
                                       const std::string& attached) {
    require(flag.takes != FlagValues::kNone || attached.empty(), name, elide(attached, kMaxArgumentBytes),
            ": expected no value");
    std::vector<std::string> values;
    if (!attached.empty()) return {attached.substr(1)};
    switch (flag.takes) {
      case FlagValues::kNone:
        break;
      case FlagValues::kOne:
        require(next_ < arguments_.size(), name, ": expected a value");
        check_value(name);
        values.push_back(arguments_[next_++]);
        break;
      case FlagValues::kOptional:
        if (next_ < arguments_.size() && !is_flag(arguments_[next_])) values.push_back(arguments_[next_++]);
        break;
      case FlagValues::kList:
        while (next_ < arguments_.size() && !is_flag(arguments_[next_]))
          values.push_back(arguments_[next_++]);
        require(!values.empty(), name, ": expected values");
        break;
    }
    return values;
  }

  const CLI::App& command_;
  const std::vector<std::string>& arguments_;
  size_t next_;
  CommandLine& line_;
};

}  // namespace

const CLI::App* find_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const std::string& word : words) command = child_command(*command, word);
  return command;
}

CommandLine read_command_line(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* command = &app;
  CommandLine line;
  size_t i = 0;
  for (; !commands_of(*command).empty(); ++i) {
    if (i == arguments.size()) fail(ErrorCode::kInvalidArgument, "no command: ", known_commands(*command));
    if (find_option(*command, arguments[i]) != nullptr) break;  // --help, --version
    if (is_flag(arguments[i])) {
      const std::string name = arguments[i].substr(0, arguments[i].find('='));
      const FoundForeignFlag found = find_foreign_flag(name);
      if (found.flag != nullptr && found.flag->use == ForeignFlagUse::kRefuse)
        adapt_foreign_flag(found, name, {});
      fail(ErrorCode::kInvalidArgument, "no command before ", elide(arguments[i], kMaxArgumentBytes), ": ",
           known_commands(*command));
    }
    command = child_command(*command, arguments[i]);
    line.arguments.push_back(arguments[i]);
  }
  FlagReader(*command, arguments, i, line).read_all();
  return line;
}

std::string unexpected_arguments(const CLI::App& app) {
  constexpr size_t kMaxNamed = 5;
  const std::vector<std::string> arguments = app.remaining(/*recurse=*/true);
  std::string names;
  for (size_t i = 0; i < std::min(arguments.size(), kMaxNamed); ++i)
    names += (i > 0 ? ", " : "") + elide(arguments[i], kMaxArgumentBytes);
  if (arguments.size() > kMaxNamed) names += fmt::format(" and {} more", arguments.size() - kMaxNamed);
  return fmt::format("{} not expected",
                     arguments.size() == 1 ? "argument " + names + ": is" : "arguments " + names + ": are");
}

}  // namespace attend::cli
