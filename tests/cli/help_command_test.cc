// attend help, --help, manual pages and completion scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/cli/run_command.h"

namespace attend {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace testing_support;

const std::vector<std::string> kCommands = {
    "generate",    "chat",          "serve", "backends", "bench", "bench attention",
    "bench model", "bench serving", "embed", "rerank",   "help",  "completion"};

std::string help(const std::string& arguments, const std::string& environment = "COLUMNS=80") {
  const CommandResult ran = attend(arguments, Streams::kStdout, environment);
  EXPECT_EQ(ran.exit_code, 0) << arguments;
  return ran.out;
}

// Titles of the groups, in order.
std::vector<std::string> groups_of(const std::string& text) {
  std::vector<std::string> groups;
  for (const std::string& line : split_lines(text))
    if (line.ends_with(':') && !line.starts_with(' ')) groups.push_back(line.substr(0, line.size() - 1));
  return groups;
}

TEST(HelpCommand, PrintsTheHelpOfEachCommand) {
  for (const std::string& command : kCommands) {
    const std::string text = help("help " + command);
    EXPECT_EQ(text, help(command + " --help")) << command;
    EXPECT_THAT(text, HasSubstr("Usage: attend " + command + " "));
  }
  EXPECT_EQ(help("help"), help("--help"));
  for (const std::string command : {"generate", "serve", "help", "completion"})
    EXPECT_THAT(help("help"), HasSubstr("\n  " + std::string(command) + " "));
}

TEST(HelpCommand, RejectsUnknownCommandsWithAGuess) {
  const CommandResult ran = attend("help generat");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("command generat: expected one of generate, chat"));
  EXPECT_THAT(ran.out, HasSubstr("(generate?)"));
  EXPECT_EQ(attend("help bench modl").exit_code, 2);
  EXPECT_THAT(attend("help serve extra").out, HasSubstr("command extra: attend serve has no commands"));
}

TEST(HelpCommand, ShowsUsualFlagsFirstAndEachFlagInAGroup) {
  const std::string text = help("generate --help");
  EXPECT_EQ(groups_of(text),
            (std::vector<std::string>{"Usual flags", "Model", "Attention", "GPUs", "Batches and memory",
                                      "Prefix cache", "Speculative decoding", "Prompts", "Sampling",
                                      "End of a completion", "Output", "Structured output", "Other flags"}));
  const size_t usual_end = text.find("\nModel:");
  for (const char* flag : {"--model-path", "--prompt TEXT", "--max-new-tokens", "--temperature"}) {
    EXPECT_LT(text.find(flag), usual_end) << flag;
    EXPECT_NE(text.find(flag), std::string::npos) << flag;
  }
  for (const std::string command : {"serve", "chat", "embed", "bench serving"})
    EXPECT_EQ(groups_of(help(std::string(command) + " --help")).front(), "Usual flags") << command;
}

TEST(HelpCommand, WrapsLinesToTheWidth) {
  for (const int columns : {50, 80, 100})
    for (const std::string& command : kCommands) {
      const std::string text = help("help " + command, "COLUMNS=" + std::to_string(columns));
      for (const std::string& line : split_lines(text)) {
        // A single word may be longer.
        const std::string words = line.substr(std::min(line.find_first_not_of(' '), line.size()));
        EXPECT_TRUE(static_cast<int>(line.size()) <= columns || words.find(' ') == std::string::npos ||
                    words.starts_with("-"))
            << line;
        EXPECT_FALSE(line.ends_with(' ')) << line;
      }
    }
}

TEST(HelpCommand, ShowsDefaultsThatApply) {
  const std::string wide = "COLUMNS=110";
  EXPECT_THAT(help("serve --help", wide), AllOf(HasSubstr("[default: 30000]"), HasSubstr(" 127.0.0.1]")));
  EXPECT_THAT(help("generate --help", wide), HasSubstr("[default: 128;"));
  EXPECT_THAT(help("chat --help"), Not(HasSubstr("128")));
  EXPECT_THAT(help("bench model --help", wide),
              AllOf(HasSubstr("[default: 512;"), HasSubstr("1,8,32,128,256]")));
}

TEST(ManualPages, ContainEveryFlagOfTheHelp) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "attend_man";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  ASSERT_EQ(attend("help --man-folder " + folder.string()).exit_code, 0);
  for (const std::string& command : kCommands) {
    std::string name = "attend-" + command;
    std::replace(name.begin(), name.end(), ' ', '-');
    std::ifstream file(folder / (name + ".1"));
    std::stringstream page;
    page << file.rdbuf();
    EXPECT_EQ(page.str(), help("help --man " + command));
    EXPECT_THAT(page.str(), testing::StartsWith(".TH "));
    for (const std::string& line : split_lines(page.str()))
      EXPECT_TRUE(!line.starts_with(".") || testing::Matches(testing::MatchesRegex("\\.(TH|SH|TP).*"))(line))
          << line;
    for (const std::string& line : split_lines(help("help " + command))) {
      const size_t flag = line.find("--");
      if (!line.starts_with("  ") || line.find_first_not_of(" ") > 6 || flag == std::string::npos) continue;
      std::string escaped = line.substr(flag, line.find_first_of(" ,", flag) - flag);
      for (size_t at = 0; (at = escaped.find('-', at)) != std::string::npos; at += 2)
        escaped.insert(at, "\\");
      EXPECT_THAT(page.str(), HasSubstr("\\fB" + escaped + "\\fR")) << line;
    }
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "attend.1"));
  const CommandResult nowhere = attend("help --man-folder /nowhere");
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.out, HasSubstr("/nowhere/attend.1: cannot be written"));
}

// Returns what bash completes for the words; the last one is being typed.
std::string completed(const std::string& words) {
  const std::string file =
      write_file("complete.bash", "source <(" ATTEND_BINARY " completion bash)\nCOMP_WORDS=(attend " + words +
                                      ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_attend\n"
                                      "echo \"${COMPREPLY[@]}\"\n");
  FILE* pipe = popen(("bash " + file).c_str(), "r");
  std::string out;
  std::array<char, 4096> part;
  for (size_t read; (read = fread(part.data(), 1, part.size(), pipe)) > 0;) out.append(part.data(), read);
  EXPECT_EQ(pclose(pipe), 0);
  return out;
}

TEST(Completion, OfBashCompletesCommandsAndFlags) {
  EXPECT_EQ(completed("ser"), "serve\n");
  EXPECT_EQ(completed("bench ''"), "attention model serving -h --help\n");
  EXPECT_EQ(completed("bench mo"), "model\n");
  EXPECT_EQ(completed("serve --por"), "--port\n");
  EXPECT_EQ(completed("generate -m model --temp"), "--temperature --temp\n");
  EXPECT_EQ(completed("generate --prompts-file ''"), "\n");  // bash completes files
}

TEST(Completion, OfOtherShellsListsEveryCommand) {
  for (const std::string shell : {"zsh", "fish"}) {
    const std::string script = help("completion " + shell);
    for (const char* word :
         {"generate", "serve", "backends", "embed", "model-path", "prompts-file", "burstiness"})
      EXPECT_THAT(script, HasSubstr(word)) << shell;
  }
  const CommandResult other = attend("completion tcsh");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.out, HasSubstr("shell tcsh: expected bash, zsh or fish"));
}

TEST(ServeCommand, AcceptsTheModelAsAnArgument) {
  const CommandResult ran = attend("serve /nowhere/model --port 0");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("/nowhere/model: no such directory"));
  EXPECT_THAT(attend("serve --port 0").out, HasSubstr("--model-path"));
}

}  // namespace
}  // namespace attend
