#include "attend/cli/help/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "attend/base/error.h"
#include "attend/cli/help/command_help.h"

namespace attend::cli {
namespace {

// A command or a group of commands with its words and flags.
struct Node {
  std::string path;  // words after the program's name: "bench model"
  const CLI::App* command;
  std::vector<FlagHelp> flags;
};

void collect(const CLI::App& command, const std::string& path, std::vector<Node>& nodes) {
  Node node{.path = path, .command = &command, .flags = {}};
  for (const FlagGroup& group : flag_groups(command))
    for (FlagHelp flag : group.flags) {
      flag.names.insert(flag.names.end(), flag.aliases.begin(), flag.aliases.end());
      node.flags.push_back(std::move(flag));
    }
  nodes.push_back(std::move(node));
  for (const CLI::App* one : commands_of(command))
    collect(*one, path.empty() ? one->get_name() : path + " " + one->get_name(), nodes);
}

std::vector<Node> all_nodes(const CLI::App& app) {
  std::vector<Node> nodes;
  collect(app, "", nodes);
  return nodes;
}

std::vector<std::string> child_names(const Node& node) {
  std::vector<std::string> names;
  for (const CLI::App* one : commands_of(*node.command)) names.push_back(one->get_name());
  return names;
}

std::vector<std::string> flag_names(const Node& node) {
  std::vector<std::string> names;
  for (const FlagHelp& flag : node.flags) names.insert(names.end(), flag.names.begin(), flag.names.end());
  return names;
}

// First sentence of a description, without its notes.
std::string summary(const std::string& description) {
  return description.substr(0,
                            std::min({description.find(" ["), description.find("; "), description.size()}));
}

// Quotes a text for a shell in single quotes. fish reads \' within them, the others do not.
std::string quote(std::string_view text, bool is_fish) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += is_fish ? "\\'" : "'\\''";
    else if (c == '\\' && is_fish)
      quoted += "\\\\";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string bash_script(const std::vector<Node>& nodes) {
  std::string cases;
  for (const Node& node : nodes)
    cases += fmt::format(
        "    {}) words={} ;;\n", quote(node.path, false),
        quote(fmt::format("{} {}", fmt::join(child_names(node), " "), fmt::join(flag_names(node), " ")),
              false));
  std::string paths;
  for (const Node& node : nodes)
    if (!node.path.empty()) paths += (paths.empty() ? "" : "|") + quote(node.path, false);
  return fmt::format(R"(# Completion of attend for bash: source <(attend completion bash)
_attend() {{
  local path= next words word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    next="${{path:+$path }}$word"
    case $next in
      {}) path=$next ;;
    esac
  done
  case $path in
{}  esac
  COMPREPLY=()
  case ${{COMP_WORDS[COMP_CWORD-1]}} in
    -*) [[ ${{COMP_WORDS[COMP_CWORD]}} == -* ]] || return ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}")
}}
complete -o default -F _attend attend
)",
                     paths, cases);
}

std::string zsh_script(const std::vector<Node>& nodes) {
  std::string cases;
  const auto item = [](const std::string& name, const std::string& text) {
    std::string escaped;
    for (const char c : name) escaped += c == ':' ? std::string("\\:") : std::string(1, c);
    return "      " + quote(escaped + ":" + summary(text), false) + "\n";
  };
  for (const Node& node : nodes) {
    cases += fmt::format("    {}) words_with_text=(\n", quote(node.path, false));
    for (const CLI::App* one : commands_of(*node.command))
      cases += item(one->get_name(), one->get_description());
    for (const FlagHelp& flag : node.flags)
      for (const std::string& name : flag.names) cases += item(name, flag.description);
    cases += "    ) ;;\n";
  }
  std::string paths;
  for (const Node& node : nodes)
    if (!node.path.empty()) paths += (paths.empty() ? "" : "|") + quote(node.path, false);
  return fmt::format(R"(#compdef attend
# Completion of attend for zsh: source <(attend completion zsh), or a file _attend in $fpath.
_attend() {{
  local path_so_far= next word
  local -a words_with_text
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    next="${{path_so_far:+$path_so_far }}$word"
    case $next in
      {}) path_so_far=$next ;;
    esac
  done
  case $path_so_far in
{}  esac
  if [[ $words[CURRENT-1] == -* && $words[CURRENT] != -* ]]; then
    _files
  else
    _describe attend words_with_text || _files
  fi
}}
if [[ $funcstack[1] == _attend ]]; then _attend "$@"; else compdef _attend attend; fi
)",
                     paths, cases);
}

std::string fish_script(const std::vector<Node>& nodes) {
  std::string lines = "# Completion of attend for fish: attend completion fish | source\n";
  for (const Node& node : nodes) {
    const std::vector<std::string> children = child_names(node);
    std::string condition;
    if (node.path.empty()) {
      condition = "__fish_use_subcommand";
    } else {
      for (size_t begin = 0; begin < node.path.size();) {
        const size_t end = std::min(node.path.find(' ', begin), node.path.size());
        condition += fmt::format("{}__fish_seen_subcommand_from {}", condition.empty() ? "" : "; and ",
                                 node.path.substr(begin, end - begin));
        begin = end + 1;
      }
      if (!children.empty())
        condition += fmt::format("; and not __fish_seen_subcommand_from {}", fmt::join(children, " "));
    }
    const std::string start = fmt::format("complete -c attend -n {}", quote(condition, true));
    for (const CLI::App* one : commands_of(*node.command))
      lines += fmt::format("{} -f -a {} -d {}\n", start, one->get_name(),
                           quote(summary(one->get_description()), true));
    for (const FlagHelp& flag : node.flags) {
      lines += start;
      for (const std::string& name : flag.names)
        lines += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      lines +=
          fmt::format("{} -d {}\n", flag.value.empty() ? "" : " -r", quote(summary(flag.description), true));
    }
  }
  return lines;
}

}  // namespace

std::string completion_script(const CLI::App& app, std::string_view shell) {
  const std::vector<Node> nodes = all_nodes(app);
  if (shell == "bash") return bash_script(nodes);
  if (shell == "zsh") return zsh_script(nodes);
  if (shell == "fish") return fish_script(nodes);
  fail(ErrorCode::kInvalidArgument, "shell ", shell, ": expected ", kShells);
}

}  // namespace attend::cli
