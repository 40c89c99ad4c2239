// Random runs with draft models and draft heads.
//   ATTEND_DRAFT_RUNS: number of runs
//   ATTEND_DRAFT_SEED: seed of the first run
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/engine/speculation/drafted_run.h"

namespace attend::model_drafter_test {
namespace {

EngineConfig with_random_trees(const EngineConfig& config, Random& random) {
  const int topk = random.between(2, 4), num_steps = config.speculation.num_steps;
  const int num_candidates = topk + (num_steps - 1) * topk * topk;
  return with_trees(config, topk, random.between(2, std::min(num_candidates + 1, 40)));
}

TEST(ModelDrafterProperty, RandomRunsProduceTheSameBitsAndAcceptDraftsOfTheTarget) {
  const char* const runs = std::getenv("ATTEND_DRAFT_RUNS");
  const int num_runs = runs == nullptr ? 60 : std::atoi(runs);
  const char* const seeds = std::getenv("ATTEND_DRAFT_SEED");
  const int first_seed = seeds == nullptr ? 1 : std::atoi(seeds);
  const std::initializer_list<std::string> targets = {
      "llama-gqa4-hd32",         "deepseek-v2-lite",   "gemma3-layer-ropes", "gpt-oss-sinks-window",
      "qwen3-some-layers-slide", "qwen3-next-grouped", "llama4-chunks",      "lfm2-conv"};
  int64_t num_preemptions = 0, num_cached = 0, num_equal = 0, num_other = 0, num_trees = 0;
  for (int seed = first_seed; seed < first_seed + num_runs; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(static_cast<unsigned>(seed));
    const std::string target = random.of(targets);
    EngineConfig config = make_config(target);
    const bool has_states = target == "qwen3-next-grouped" || target == "lfm2-conv";
    const std::filesystem::path draft =
        !has_states && random.one_in(2)
            ? golden(target)
            : random.of({golden("llama-mha-hd64-tied"), golden("gemma2-caps-window"), similar_llama(),
                         golden("deepseek-v3")});
    config.speculation = standalone(draft, random.between(1, 7));
    config.speculation.disable_by_batch_size = random.of({1, 4, 16, 16});
    config.backend_options.page_size = 1 << random.below(6);
    config.chunked_prefill_size = random.of({8, 16, 24, 64, 512});
    config.max_running_requests = random.of({1, 3, 8});
    config.max_total_tokens = random.of({0, 128, 160});
    config.disable_radix_cache = random.one_in(5);
    config.overlap_schedule = random.one_in(2);
    config.schedule.conservativeness = random.of({0.0, 1.0});
    const std::vector<TestRequest> requests = random_requests(random);
    if (random.one_in(2)) {
      const HeadCase& head = kHeads[static_cast<size_t>(random.below(static_cast<int>(std::size(kHeads))))];
      const SpeculativeOptions options = config.speculation;
      config.model_path = golden(head.target);
      config.speculation = head_drafting(head, options.num_steps).speculation;
      config.speculation.disable_by_batch_size = options.disable_by_batch_size;
      config.overlap_schedule.reset();
    }
    const bool has_trees = random.one_in(3) && !read_config(config.model_path).has_states();
    if (has_trees)
      config = with_random_trees(config, random);
    else
      config.speculation.adaptive = random.one_in(3);
    const bool is_equal = !has_trees && config.model_path == config.speculation.draft_model_path;
    const DraftedRun drafted = expect_same(config, requests);
    if (has_trees) num_trees += drafted.stats.drafts.num_drafted;
    if (!has_trees && drafted.stats.drafts.num_drafted > 100)
      expect_same_drafts(run(one_by_one(config), requests, false), drafted);
    num_preemptions += drafted.num_preemptions;
    num_cached += drafted.stats.num_cached_tokens;
    (is_equal ? num_equal : num_other) += drafted.stats.drafts.num_drafted;
    RequestId id = 1;
    for (const TestRequest& request : requests) {
      for (int i = 0; i < request.request.params.n && is_equal && request.is_greedy(); ++i) {
        const DraftCounts& counts = drafted.answers.at({id, i}).counts;
        EXPECT_EQ(counts.num_accepted, counts.num_drafted) << "request " << id;
      }
      id += request.request.params.n;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(num_preemptions, num_runs / 40) << "the test checks too little";
  EXPECT_GT(num_cached, 10 * num_runs) << "the test checks too little";
  EXPECT_GT(std::min({num_equal, num_other, num_trees}), num_runs) << "the test checks too little";
}

}  // namespace
}  // namespace attend::model_drafter_test
