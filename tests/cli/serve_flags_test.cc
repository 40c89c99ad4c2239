// Every flag of attend serve has an effect or is rejected by its name. The flags are those of --help, so that
// a new one is tested too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "tests/cli/run_command.h"

namespace attend {
namespace {

using testing::HasSubstr;
using namespace testing_support;

// No server starts at this address.
const std::string kServeNowhere = "serve --model-path " + kTinyModel + " --host 192.0.2.1 --port 80";

// Returns the flags with a value: the last of each flag's names.
std::set<std::string> flags_with_values() {
  const std::string help = attend("serve --help").out;
  const std::regex pattern("(--[a-z][a-z0-9-]+)(?:\\s|=)*(?:TEXT|NUMBER)");
  std::set<std::string> flags;
  for (std::sregex_iterator match(help.begin(), help.end(), pattern), end; match != end; ++match)
    flags.insert((*match)[1]);
  return flags;
}

TEST(ServeFlags, RejectAnEmptyValue) {
  const std::set<std::string> flags = flags_with_values();
  EXPECT_GT(flags.size(), 45u);
  for (const std::string& flag : flags) {
    const bool is_address = flag == "--host" || flag == "--port";
    const CommandResult ran =
        attend((is_address ? "serve --model-path " + kTinyModel : kServeNowhere) + " " + flag + " ''");
    EXPECT_EQ(ran.exit_code, 2) << flag;
    // The error has the flag's first name.
    EXPECT_THAT(ran.out, testing::ContainsRegex("attend: --[a-z-]+ '?'?.*expected")) << flag;
    EXPECT_THAT(ran.out, Not(HasSubstr("cannot listen"))) << flag << ": " << ran.out;
  }
}

TEST(ServeFlags, RejectFlagsWithoutEffect) {
  const std::pair<const char*, const char*> cases[] = {
      {"--cuda-graph-bs 1 --disable-cuda-graph", "--cuda-graph-bs: no effect with --disable-cuda-graph"},
      {"--cuda-graph-max-bs 1 --cuda-graph-bs 1", "--cuda-graph-max-bs: no effect with --cuda-graph-bs"},
      {"--swa-full-tokens-ratio 0.5 --disable-hybrid-swa-memory",
       "--swa-full-tokens-ratio: no effect with --disable-hybrid-swa-memory"},
      {"--radix-eviction-policy lfu --disable-radix-cache",
       "--radix-eviction-policy: no effect with --disable-radix-cache"},
      {"--mamba-full-memory-ratio 2 --disable-radix-cache",
       "--mamba-full-memory-ratio: no effect with --disable-radix-cache"},
      {"--mamba-full-memory-ratio 2 --max-mamba-cache-size 8",
       "--mamba-full-memory-ratio: no effect with --max-mamba-cache-size"},
      {"--state-snapshot-interval 64 --disable-radix-cache",
       "--state-snapshot-interval: no effect with --disable-radix-cache"},
      {"--enable-hierarchical-cache --disable-radix-cache",
       "--enable-hierarchical-cache: no effect with --disable-radix-cache"},
      {"--enable-hierarchical-cache --hicache-ratio 2 --hicache-size 1",
       "--hicache-ratio: no effect with --hicache-size"},
      {"--hicache-storage-dir /tmp", "--hicache-storage-dir: requires --enable-hierarchical-cache"},
      {"--unix-socket x", "--host: no effect with --unix-socket"},
      {"--attention-backend cpu --prefill-attention-backend cpu --decode-attention-backend cpu",
       "--attention-backend: no effect with --prefill-attention-backend and --decode-attention-backend"},
      {"--ssl-keyfile-password x", "--ssl-keyfile-password: only with --ssl-keyfile"},
      {"--grammar-total-memory-mb 100", "--grammar-total-memory-mb 100: at least --grammar-memory-mb, 512"}};
  for (const auto& [flags, message] : cases) {
    const CommandResult ran = attend(kServeNowhere + " " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(message));
  }
}

}  // namespace
}  // namespace attend
