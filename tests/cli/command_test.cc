// Behavior shared by all commands, and attend chat and attend serve as far as pipes and flags can test them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/cli/run_command.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using namespace testing_support;

TEST(AttendCommand, PrintsVersionCommitAndDevices) {
  const CommandResult ran = attend("--version", Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  const auto lines = split_lines(ran.out);
  ASSERT_GE(lines.size(), 3u);
  EXPECT_THAT(lines[0], testing::MatchesRegex("attend [0-9]+\\.[0-9]+\\.[0-9]+ \\(git .+\\)"));
  EXPECT_THAT(lines[1], testing::MatchesRegex("cpu     .+, [0-9]+ cores, .+"));
  EXPECT_THAT(lines[2], StartsWith("cuda"));
}

// To update the file: build/release/attend backends --markdown > docs/support-matrix.md
TEST(SupportMatrix, DocsMatchCapabilityRecords) {
  std::ifstream file(ATTEND_SOURCE_DIR "/docs/support-matrix.md");
  std::ostringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), attend("backends --markdown", Streams::kStdout).out);
}

// To update the page: scripts/update_models_page.py build/release/attend
TEST(ModelTable, DocsMatchArchitectureRecords) {
  std::ifstream file(ATTEND_SOURCE_DIR "/docs/models.md");
  std::ostringstream page;
  page << file.rdbuf();
  const std::string table =
      attend("backends --models " ATTEND_SOURCE_DIR "/tests/goldens", Streams::kStdout).out;
  EXPECT_THAT(table, testing::HasSubstr("| `LlamaForCausalLM` | "));
  EXPECT_THAT(page.str(), testing::HasSubstr(table));
}

TEST(ChatCommand, AnswersPipedTurnsAndCommands) {
  const std::string file = write_file("turns.txt",
                                      "copy: laugh [ scout coffee ] roll ->\n\n"
                                      "\"\"\"reverse: laugh [ sun fox ] ->\"\"\"\n/retry\n/undo\n/history\n");
  const CommandResult ran = attend("chat --model-path " + kTinyModel + " < " + file, Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out,
            " scout coffee\n fox sun\n fox sun\nuser: copy: laugh [ scout coffee ] roll ->\nassistant:  "
            "scout coffee\n");
}

TEST(ChatCommand, StopsAtTheFirstInvalidInputOfAPipe) {
  const CommandResult ran =
      attend("chat --model-path " + kTinyModel + " < " + write_file("turns.txt", "/nothing\n"));
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("/nothing: unknown command"));
}

TEST(ServeCommand, RejectsAnUnavailableAddressBeforeLoadingWeights) {
  const auto model = std::filesystem::path(testing::TempDir()) / "attend_config_alone";
  std::filesystem::create_directories(model);
  std::filesystem::copy_file(kTinyModel + "/config.json", model / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  const CommandResult ran = attend("serve --model-path " + model.string() + " --host 192.0.2.1 --port 80");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("--host 192.0.2.1 --port 80: cannot listen"));
}

TEST(ServeCommand, RejectsFlagsOutOfRange) {
  const std::pair<const char*, const char*> cases[] = {
      {"--port 70000", "--port '70000': expected an integer from 0 to 65535"},
      {"--unix-socket x --port 1", "--port: no effect with --unix-socket"},
      {"--served-model-name \"\"", "--served-model-name '': expected a name"},
      {"--schedule-policy lpm --disable-radix-cache --page-size 3",
       "--schedule-policy lpm: same as fcfs with --disable-radix-cache"},
      {"--max-connections 0", "--max-connections '0': expected an integer from 1"},
      {"--port 0 --chat-template nothing", "--chat-template nothing: no such file"}};
  for (const auto& [flags, message] : cases) {
    const CommandResult ran = attend("serve --model-path " + kTinyModel + " " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(message));
  }
}

// Runs the commands that read a config on configs that are endless, missing or nested too deeply.
TEST(Command, RejectsAConfigThatIsNotAFileOrTooDeep) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "attend_hostile_config";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto config = folder / "config.json";
  const auto expect_rejected = [&](const std::string& why) {
    for (const std::string command : {"generate -p x", "backends", "bench model --device cpu",
                                      "bench model --device cpu --load-format dummy --num-layers 1"}) {
      const CommandResult ran = attend(command + " --model-path " + folder.string());
      EXPECT_EQ(ran.exit_code, 2) << command;
      EXPECT_THAT(ran.out, HasSubstr(config.string() + ": " + why)) << command;
    }
    std::filesystem::remove(config);
  };
  ASSERT_EQ(mkfifo(config.c_str(), 0600), 0);
  expect_rejected("is a pipe");
  std::filesystem::create_symlink("/dev/zero", config);
  expect_rejected("is a device");
  std::filesystem::create_symlink("../blobs/0123", config);
  expect_rejected("the link is broken");
  std::ofstream(config) << std::string(100'000, '[') << std::string(100'000, ']');
  expect_rejected("expected JSON nested at most 64 levels deep");
  std::ofstream(config) << std::string((16 << 20) + 1, ' ');
  expect_rejected("16777217 bytes: at most 16777216");
}

TEST(Command, RejectsAPathThatTheFileSystemRejects) {
  const auto circle = std::filesystem::path(testing::TempDir()) / "attend_circle";
  std::filesystem::remove(circle);
  std::filesystem::create_symlink(circle, circle);
  for (const std::string& path : {circle.string(), std::string(1000, 'n'), "/" + std::string(5000, 'n')})
    for (const std::string& command :
         std::vector<std::string>{"backends --model-path ", "generate -p x --model-path ",
                                  "generate --model-path " + kTinyModel + " --prompts-file "}) {
      const CommandResult ran = attend(command + path);
      EXPECT_EQ(ran.exit_code, 2) << command;
      EXPECT_THAT(ran.out, testing::AnyOf(HasSubstr("in a circle"), HasSubstr("longer than"))) << command;
    }
}

TEST(Command, FailsIfItsOutputCannotBeWritten) { EXPECT_EQ(attend("backends > /dev/full").exit_code, 2); }

TEST(Command, RejectsUnknownCommandsAndPrintsHelp) {
  EXPECT_EQ(attend("frobnicate").exit_code, 2);
  EXPECT_EQ(attend("").exit_code, 2);
  const CommandResult help = attend("generate --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--prefill-attention-backend"));
}

}  // namespace
}  // namespace attend
