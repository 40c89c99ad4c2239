// Tiers of the prefix cache below the pool: pages that come back from host memory or from the disk change no
// bit of any answer, and no fault of the disk does.
//   ATTEND_TIER_REQUESTS: requests of the storm per case (scripts/nightly_tests.sh)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "attend/engine/engine.h"
#include "attend/kv/tier/copy_queue.h"
#include "tests/support/error_message.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

namespace fs = std::filesystem;
using test::TempDir;
using testing_support::error_message;
using Tokens = std::vector<int32_t>;

struct TierCase {
  std::string name;
  const char* model;
  int page_size = 8;
  int pool_tokens = 320;
  HostWritePolicy write_policy = HostWritePolicy::kWriteThrough;
  double host_ratio = 1.5;
  int tp_size = 1;
  bool overlaps = false;
  int num_draft_tokens = 0;

  friend void PrintTo(const TierCase& c, std::ostream* out) { *out << c.name; }
};

EngineConfig plain_config(const TierCase& c) {
  EngineConfig config;
  config.model_path = std::string(ATTEND_SOURCE_DIR "/tests/goldens/") + c.model;
  config.backend_options.page_size = c.page_size;
  config.max_running_requests = 4;
  config.context_length = 256;
  config.deterministic_inference = true;
  config.disable_radix_cache = true;
  config.tp_size = c.tp_size;
  config.max_total_tokens = 2048;
  return config;
}

EngineConfig tier_config(const TierCase& c, const fs::path& directory = {}) {
  EngineConfig config = plain_config(c);
  config.disable_radix_cache = false;
  config.max_total_tokens = c.pool_tokens;
  config.chunked_prefill_size = 64;
  config.state_snapshot_interval = 32;
  config.max_mamba_cache_size = config.max_running_requests + 6;
  config.overlap_schedule = c.overlaps;
  if (c.num_draft_tokens > 0)
    config.speculation = {.algorithm = SpeculativeAlgorithm::kNgram,
                          .num_draft_tokens = c.num_draft_tokens,
                          .disable_by_batch_size = config.max_running_requests};
  config.hierarchical_cache = {
      .enabled = true, .ratio = c.host_ratio, .write_policy = c.write_policy, .storage_dir = directory};
  return config;
}

// A temperature so high that a change of one bit in a logit soon changes a token.
SamplingParams sampling(uint64_t seed, int max_new_tokens) {
  return {.max_new_tokens = max_new_tokens, .temperature = 1.5f, .seed = seed, .ignore_eos = true};
}

Tokens random_tokens(std::mt19937& generator, int count) {
  std::uniform_int_distribution<int32_t> any(2, 120);
  Tokens tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = any(generator);
  return tokens;
}

struct TierAnswer {
  Tokens tokens;
  int num_cached = 0, num_host = 0, num_disk = 0;
  bool finished = false;
};

void add_output(std::map<RequestId, TierAnswer>& answers, const RequestOutput& output) {
  TierAnswer& answer = answers[output.id];
  answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
  answer.num_cached = output.request.num_cached_tokens;
  answer.num_host = output.request.num_host_cached_tokens;
  answer.num_disk = output.request.num_disk_cached_tokens;
  answer.finished = output.finish_reason == FinishReason::kLength;
}

TierAnswer ask(Engine& engine, const Tokens& prompt, int max_new_tokens = 12) {
  const RequestId id = engine.submit(prompt, sampling(1, max_new_tokens));
  std::map<RequestId, TierAnswer> answers;
  while (engine.step([&](const RequestOutput& output) { add_output(answers, output); }))
    engine.check_memory();
  return answers.at(id);
}

// Prompts that no longer fit into the pool together, so each of them leaves it.
void push_out(Engine& engine, unsigned seed) {
  std::mt19937 generator(seed);
  for (int i = 0; i < 8; ++i) ask(engine, random_tokens(generator, 120), 2);
}

std::vector<fs::path> stored_files(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

// Steps until the disk tier has written all pages of the host tier.
void complete_writes(Engine& engine) {
  while (engine.cache_tiers().num_host_pinned_pages > 0) ask(engine, {5, 6, 7}, 1);
}

constexpr TierCase kFull{.name = "full", .model = "llama-gqa4-hd32"};

const TierCase kCases[] = {
    kFull,
    {.name = "windows", .model = "qwen3-some-layers-slide", .page_size = 4},
    {.name = "windows_written_back",
     .model = "gemma4-shared-kv",
     .page_size = 4,
     .write_policy = HostWritePolicy::kWriteBack},
    {.name = "latent_rows", .model = "deepseek-v3", .page_size = 1, .overlaps = true},
    {.name = "latent_rows_written_back",
     .model = "deepseek-v3",
     .page_size = 16,
     .write_policy = HostWritePolicy::kWriteBack},
    {.name = "index_keys", .model = "glm-moe-dsa-shared"},
    {.name = "recurrent", .model = "qwen3-5-text-tied"},
    {.name = "recurrent_written_back",
     .model = "kimi-linear-kda",
     .write_policy = HostWritePolicy::kWriteBack,
     .overlaps = true},
    {.name = "large_pages",
     .model = "llama-gqa4-hd32",
     .page_size = 64,
     .pool_tokens = 512,
     .host_ratio = 0.5},
    {.name = "small_host", .model = "qwen3-5-text-tied", .host_ratio = 0.4},
    {.name = "drafts", .model = "qwen3-some-layers-slide", .num_draft_tokens = 6},
    {.name = "ranks", .model = "llama-gqa4-hd32", .tp_size = 2},
};

class HierarchicalCache : public testing::TestWithParam<TierCase> {
 protected:
  TempDir directory_;
};
INSTANTIATE_TEST_SUITE_P(, HierarchicalCache, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

TEST_P(HierarchicalCache, AHostTierReturnsThePagesThatThePoolHasEvicted) {
  TierCase c = GetParam();
  c.host_ratio = 16.0;  // keeps the data of all prompts
  Engine engine(tier_config(c)), plain(plain_config(c));
  std::mt19937 generator(1);
  const Tokens prompt = random_tokens(generator, 130);
  const TierAnswer expected = ask(plain, prompt);
  EXPECT_EQ(ask(engine, prompt).tokens, expected.tokens);
  push_out(engine, 2);
  const TierAnswer again = ask(engine, prompt);
  EXPECT_EQ(again.tokens, expected.tokens);
  EXPECT_EQ(again.num_cached, 129 / c.page_size * c.page_size);
  EXPECT_EQ(again.num_disk, 0);
  EXPECT_GE(again.num_host, 64);
  EXPECT_EQ(engine.cache_tiers().num_host_hit_pages * c.page_size, again.num_host);
}

TEST_P(HierarchicalCache, ADiskTierReturnsPagesAfterARestart) {
  TierCase c = GetParam();
  c.write_policy = HostWritePolicy::kWriteThrough;
  c.host_ratio = 4.0;
  Engine plain(plain_config(c));
  std::mt19937 generator(1);
  const Tokens prompt = random_tokens(generator, 130);
  const Tokens expected = ask(plain, prompt).tokens;
  {
    Engine engine(tier_config(c, directory_.path()));
    EXPECT_EQ(ask(engine, prompt).tokens, expected);
  }
  for (int restart = 0; restart < 2; ++restart) {
    Engine engine(tier_config(c, directory_.path()));
    const TierAnswer again = ask(engine, prompt);
    EXPECT_EQ(again.tokens, expected);
    EXPECT_EQ(again.num_disk, 129 / c.page_size * c.page_size);
    EXPECT_EQ(again.num_cached, again.num_disk);
    EXPECT_EQ(again.num_host, 0);
    // A part of the prefix, then a longer prompt.
    const Tokens shorter(prompt.begin(), prompt.begin() + 70);
    EXPECT_EQ(ask(engine, shorter).tokens, ask(plain, shorter).tokens);
    Tokens longer = prompt;
    longer.push_back(7);
    EXPECT_EQ(ask(engine, longer).tokens, ask(plain, longer).tokens);
  }
}

TEST(HierarchicalCacheAtExit, PagesOfThePoolAreWrittenBack) {
  TierCase c = kFull;
  c.write_policy = HostWritePolicy::kWriteBack;
  c.host_ratio = 0.3;  // less than the prompt
  const TempDir directory;
  Engine plain(plain_config(c));
  std::mt19937 generator(1);
  const Tokens prompt = random_tokens(generator, 130);
  const Tokens expected = ask(plain, prompt).tokens;
  {
    Engine engine(tier_config(c, directory.path()));
    EXPECT_EQ(ask(engine, prompt).tokens, expected);
    EXPECT_EQ(engine.cache_tiers().num_demoted_pages, 0);
  }
  c.host_ratio = 4.0;
  Engine engine(tier_config(c, directory.path()));
  const TierAnswer again = ask(engine, prompt);
  EXPECT_EQ(again.tokens, expected);
  EXPECT_EQ(again.num_disk, 128);
}

// Delays the copies of all engines.
class DelayedCopies {
 public:
  explicit DelayedCopies(std::chrono::microseconds longest) { CopyQueue::set_max_delay(longest); }
  ~DelayedCopies() { CopyQueue::set_max_delay({}); }
  DelayedCopies(const DelayedCopies&) = delete;
  DelayedCopies& operator=(const DelayedCopies&) = delete;
};

// Requests over prompts with common prefixes, several times as long as pool and host tier together. Some are
// aborted, and the cache is flushed at times. Copies end late. After every step, the pages of each
// tier have one owner.
TEST_P(HierarchicalCache, GivesTheSameBitsInAStormOverThreeTiers) {
  const TierCase& c = GetParam();
  const char* const given = std::getenv("ATTEND_TIER_REQUESTS");
  const int num_requests = given != nullptr ? std::atoi(given) : 120;
  std::mt19937 generator(static_cast<unsigned>(c.name.size()));
  const auto below = [&](int end) { return static_cast<int>(generator() % static_cast<unsigned>(end)); };
  std::vector<Tokens> prompts;
  std::vector<Tokens> expected;
  Engine plain(plain_config(c));
  for (int i = 0; i < 40; ++i) {
    Tokens prompt = i % 4 == 0 ? Tokens() : prompts[static_cast<size_t>(i / 4 * 4 + below(i % 4))];
    if (below(2) == 0) prompt.resize(static_cast<size_t>(below(static_cast<int>(prompt.size()) + 1)));
    const Tokens own = random_tokens(generator, 20 + below(50));
    prompt.insert(prompt.end(), own.begin(), own.end());
    prompt.resize(std::min<size_t>(prompt.size(), 200));
    prompts.push_back(prompt);
    expected.push_back(ask(plain, prompt, 6).tokens);
  }
  EngineConfig config = tier_config(c, directory_.path());
  config.schedule.conservativeness = 0.0;
  config.hierarchical_cache.storage_size_gb = 0.002;
  const DelayedCopies delayed(std::chrono::milliseconds(2));
  Engine engine(config);
  std::map<RequestId, size_t> running;
  std::map<RequestId, TierAnswer> answers;
  const OutputSink sink = [&](const RequestOutput& output) { add_output(answers, output); };
  const auto check_answers = [&] {
    for (auto& [id, answer] : answers) {
      Tokens wanted = expected[running.at(id)];
      if (!answer.finished) wanted.resize(std::min(wanted.size(), answer.tokens.size()));  // aborted
      ASSERT_EQ(answer.tokens, wanted)
          << "prompt " << running.at(id) << ", " << answer.num_cached << " tokens cached, " << answer.num_host
          << " of them from the host and " << answer.num_disk << " from the disk";
    }
  };
  int num_aborted = 0;
  for (int i = 0; i < num_requests;) {
    for (int more = 1 + below(5); more > 0 && i < num_requests; --more, ++i) {
      const auto which = static_cast<size_t>(below(static_cast<int>(prompts.size())));
      running[engine.submit(prompts[which], sampling(1, 6))] = which;
    }
    for (int step = below(12); step > 0; --step) {
      engine.step(sink);
      engine.check_memory();
      if (below(25) == 0) num_aborted += engine.abort(running.rbegin()->first - below(4), sink) ? 1 : 0;
    }
    if (below(60) == 0) engine.flush_cache();
    if (below(3) > 0) continue;
    while (engine.step(sink)) engine.check_memory();
    check_answers();
    if (HasFatalFailure()) return;
    answers.clear();
  }
  while (engine.step(sink)) engine.check_memory();
  check_answers();
  EXPECT_EQ(engine.num_used_slots(), 0);
  EXPECT_EQ(engine.stats().num_recoveries, 0);
  EXPECT_EQ(engine.stats().num_failed_steps, 0);
  EXPECT_GT(num_aborted, 0);
  const CacheTierStats tiers = engine.cache_tiers();
  EXPECT_GT(tiers.num_host_hit_pages, 0);
  EXPECT_GT(tiers.num_disk_hit_pages, 0);
  EXPECT_EQ(tiers.num_host_free_pages + tiers.num_host_cached_pages + tiers.num_host_pinned_pages,
            tiers.num_host_pages);
  EXPECT_EQ(tiers.num_disk_failures, 0);
  EXPECT_EQ(tiers.num_rejected_files, 0);
  engine.flush_cache();
  EXPECT_EQ(engine.cache_tiers().num_host_free_pages, tiers.num_host_pages);
  EXPECT_TRUE(stored_files(directory_.path()).empty());
}

class DiskTierFaults : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 generator(3);
    prompt_ = random_tokens(generator, 130);
    Engine plain(plain_config(kFull));
    expected_ = ask(plain, prompt_).tokens;
  }

  EngineConfig config() const {
    EngineConfig config = tier_config(kFull, directory_.path());
    config.hierarchical_cache.ratio = 4.0;
    return config;
  }
  // Stores the prompt's pages in files of two pages, and their answer.
  void store() {
    Engine engine(config());
    for (const size_t end : {16u, 50u, 90u, 130u})
      ask(engine, Tokens(prompt_.begin(), prompt_.begin() + static_cast<std::ptrdiff_t>(end)), 1);
  }
  // Asks an engine that knows only the files.
  TierAnswer ask_again(bool rejects) {
    Engine engine(config());
    const TierAnswer answer = ask(engine, prompt_);
    EXPECT_EQ(answer.tokens, expected_);
    EXPECT_EQ(engine.cache_tiers().num_rejected_files > 0, rejects);
    EXPECT_EQ(engine.stats().num_failed_steps, 0);
    return answer;
  }
  void damage(const std::function<void(std::string& bytes)>& change) {
    for (const fs::path& file : stored_files(directory_.path())) {
      std::ifstream in(file, std::ios::binary);
      std::string bytes{std::istreambuf_iterator<char>(in), {}};
      in.close();
      change(bytes);
      std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    }
  }

  TempDir directory_;
  Tokens prompt_, expected_;
};

TEST_F(DiskTierFaults, TornFilesAreRemovedAndTheirTokensComputed) {
  for (const double left : {0.0, 0.001, 0.3, 0.999}) {
    SCOPED_TRACE(left);
    store();
    damage([&](std::string& bytes) {
      bytes.resize(static_cast<size_t>(static_cast<double>(bytes.size()) * left));
    });
    EXPECT_EQ(ask_again(true).num_disk, 0);
    EXPECT_EQ(ask_again(false).num_disk, 128) << "the file was written again";
  }
}

TEST_F(DiskTierFaults, AChangedByteIsFoundWhereverItIs) {
  store();
  for (const double place : {0.0, 0.0001, 0.002, 0.1, 0.5, 0.9999}) {
    SCOPED_TRACE(place);
    damage([&](std::string& bytes) {
      bytes[static_cast<size_t>(static_cast<double>(bytes.size()) * place)] ^= 0x10;
    });
    EXPECT_LT(ask_again(true).num_disk, 128);
    fs::remove_all(directory_.path());
    store();
  }
}

TEST_F(DiskTierFaults, FilesOfAnotherVersionAreIgnored) {
  store();
  damage([](std::string& bytes) { bytes[8] = 77; });
  EXPECT_EQ(ask_again(true).num_disk, 0);
}

TEST_F(DiskTierFaults, FilesOfAnotherModelAreNotUsed) {
  store();
  // The same architecture and prompt, with another dtype of K/V.
  EngineConfig other = config();
  other.kv_cache_dtype = DType::kF16;
  EngineConfig plain = plain_config(kFull);
  plain.kv_cache_dtype = DType::kF16;
  Engine engine(other), reference(plain);
  const TierAnswer answer = ask(engine, prompt_);
  EXPECT_EQ(answer.num_disk, 0);
  EXPECT_EQ(answer.tokens, ask(reference, prompt_).tokens);
  // Files that were renamed to the folder of another model.
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(directory_.path())) folders.push_back(entry.path());
  ASSERT_EQ(folders.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const fs::path& from = folders[static_cast<size_t>(i)];
    const fs::path& to = folders[static_cast<size_t>(1 - i)];
    for (const fs::path& file : stored_files(from)) {
      const fs::path target = to / fs::relative(file, from);
      fs::create_directories(target.parent_path());
      fs::copy_file(file, target, fs::copy_options::skip_existing);
    }
  }
  EXPECT_EQ(ask_again(false).num_disk, 128) << "the names contain the model too";
}

TEST_F(DiskTierFaults, AFullDiskFailsWritesOnly) {
  // The process may write no large file: the error of a full disk, at the same call.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {.rlim_cur = 2048, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    Engine engine(config());
    EXPECT_EQ(ask(engine, prompt_).tokens, expected_);
    push_out(engine, 4);
    const TierAnswer again = ask(engine, prompt_);
    EXPECT_EQ(again.tokens, expected_);
    EXPECT_EQ(again.num_host, again.num_cached) << "the host tier is not affected";
    EXPECT_GT(engine.cache_tiers().num_disk_failures, 0);
  }
  EXPECT_TRUE(stored_files(directory_.path()).empty()) << "incomplete files are removed";
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  store();
  EXPECT_EQ(ask_again(false).num_disk, 128);
}

TEST_F(DiskTierFaults, ADirectoryThatDisappearsFailsNoRequest) {
  Engine engine(config());
  EXPECT_EQ(ask(engine, prompt_).tokens, expected_);
  complete_writes(engine);
  fs::remove_all(directory_.path());
  std::ofstream(directory_.path()) << "a file";
  push_out(engine, 4);
  EXPECT_EQ(ask(engine, prompt_).tokens, expected_);
  fs::remove(directory_.path());
  engine.flush_cache();
  EXPECT_EQ(ask(engine, prompt_).tokens, expected_);
  EXPECT_GT(engine.cache_tiers().num_disk_failures, 0);
}

TEST_F(DiskTierFaults, ADirectoryThatCannotBeUsedIsRejected) {
  EngineConfig config = this->config();
  config.hierarchical_cache.storage_dir = directory_.write("file", "x") / "cache";
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { Engine engine(config); }),
              testing::AllOf(testing::StartsWith("--hicache-storage-dir "), testing::HasSubstr("file/cache"),
                             testing::HasSubstr("Not a directory")));
}

TEST_F(DiskTierFaults, FilesStayBelowTheLimit) {
  EngineConfig config = this->config();
  config.hierarchical_cache.storage_size_gb = 0.0002;
  {
    Engine engine(config);
    for (unsigned seed = 10; seed < 14; ++seed) push_out(engine, seed);
    complete_writes(engine);
    EXPECT_EQ(ask(engine, prompt_).tokens, expected_);
  }
  int64_t total = 0;
  for (const fs::path& file : stored_files(directory_.path()))
    total += static_cast<int64_t>(fs::file_size(file));
  EXPECT_LE(total, 200000);
  EXPECT_GT(total, 50000);
  EXPECT_GT(ask_again(false).num_disk, 0) << "the files that were written last are kept";
}

TEST_F(DiskTierFaults, ServersShareADirectory) {
  Engine first(config()), second(config());
  EXPECT_EQ(ask(first, prompt_).tokens, expected_);
  complete_writes(first);
  const TierAnswer shared = ask(second, prompt_);
  EXPECT_EQ(shared.num_disk, 128);
  EXPECT_EQ(shared.tokens, expected_);
}

TEST_F(DiskTierFaults, SaltsKeepRequestsApart) {
  const auto cached = [&](const char* salt) {
    Engine engine(config());
    const RequestId id = engine.submit(
        GenerationRequest{.prompt = prompt_, .params = sampling(1, 4), .cache_salt = salt, .priority = 0});
    std::map<RequestId, TierAnswer> answers;
    while (engine.step([&](const RequestOutput& output) { add_output(answers, output); })) {
    }
    return answers.at(id).num_disk;
  };
  EXPECT_EQ(cached("alice"), 0);
  EXPECT_EQ(cached("bob"), 0);
  EXPECT_EQ(cached("alice"), 128);
}

TEST(HierarchicalCacheOptions, AreCheckedBeforeWeightsAreRead) {
  const auto rejected = [](ErrorCode code, const std::function<void(EngineConfig&)>& change) {
    EngineConfig config = tier_config(kFull);
    change(config);
    return error_message(code, [&] { Engine engine(config); });
  };
  EXPECT_THAT(
      rejected(ErrorCode::kOutOfMemory, [](EngineConfig& c) { c.hierarchical_cache.size_gb = 5000.0; }),
      testing::AllOf(testing::HasSubstr("host tier of the prefix cache"), testing::HasSubstr("needed"),
                     testing::HasSubstr("free")));
  EXPECT_THAT(
      rejected(ErrorCode::kInvalidArgument, [](EngineConfig& c) { c.hierarchical_cache.ratio = 0.0; }),
      testing::HasSubstr("hicache_ratio 0"));
  EXPECT_THAT(
      rejected(ErrorCode::kInvalidArgument, [](EngineConfig& c) { c.hierarchical_cache.size_gb = 1e-9; }),
      testing::HasSubstr("less than a page"));
  EXPECT_THAT(rejected(ErrorCode::kInvalidArgument, [](EngineConfig& c) { c.disable_radix_cache = true; }),
              testing::HasSubstr("requires the prefix cache"));
  EXPECT_THAT(rejected(ErrorCode::kInvalidArgument,
                       [](EngineConfig& c) {
                         c.hierarchical_cache.enabled = false;
                         c.hierarchical_cache.storage_dir = "/tmp";
                       }),
              testing::HasSubstr("requires enable_hierarchical_cache"));
  EXPECT_THAT(rejected(ErrorCode::kUnsupported,
                       [](EngineConfig& c) {
                         c.model_path = ATTEND_SOURCE_DIR "/tests/goldens/qwen3-5-text-tied";
                         c.speculation.algorithm = SpeculativeAlgorithm::kNgram;
                       }),
              testing::HasSubstr("recurrent states"));
}

}  // namespace
}  // namespace attend
