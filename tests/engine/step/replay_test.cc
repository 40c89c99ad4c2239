// Decode steps and steps with drafts that are replayed from CUDA graphs match eager steps.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "attend/attention/resolver.h"
#include "attend/backends/table.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/engine/step/step_runner.h"
#include "attend/exec/model_executor.h"

namespace attend {
namespace {

using testing::ElementsAre;

// Two executors of the bundled model on the same rows and slots, with one runner each: one replays graphs,
// the other launches kernels.
class ReplayOnGpu : public testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  static constexpr Device kGpu{DeviceType::kCuda, 0};
  static constexpr int kContextLen = 3072, kPageSize = 16, kMaxReqs = 6, kMaxVerified = 8;

  struct ExecutorAndRunner {
    ExecutorAndRunner(const ExecutorConfig& config, const ReqToTokenPool& rows) : executor(config, {rows}) {
      executor.load();
    }
    ModelExecutor executor;
    std::optional<StepRunner> runner;
  };

  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
    const auto [backend, dtype] = GetParam();
    ExecutorConfig config;
    config.checkpoint = open_checkpoint(ATTEND_SOURCE_DIR "/models/attend-tiny");
    config.model = read_config(*config.checkpoint);
    // RoPE tables have a row for each position of the model.
    config.model.max_position_embeddings = kContextLen;
    config.placement = {.device = kGpu, .dtype = dtype};
    const BackendEntry* const entry = find_backend(backend_table(), backend);
    config.resolution = {.prefill = entry, .decode = entry, .page_size = kPageSize};
    config.backend = {.device = kGpu,
                      .model = config.model.geometry(dtype, dtype),
                      .limits = {.max_reqs = kMaxReqs,
                                 .max_tokens = 512,
                                 .max_kv_tokens = kMaxReqs * kContextLen,
                                 .max_draft_tokens = kMaxReqs * (kMaxVerified - 1),
                                 .max_draft_reqs = kMaxReqs},
                      .page_size = kPageSize};
    config.backend.model.max_context_len = kContextLen;
    config.storage = make_cache_storage_config(config.model.caches(), kPageSize, dtype, kGpu);
    config.storage.num_pages = kMaxReqs * kContextLen / kPageSize + 1;
    config.decode_sizes = {1, 2, 4, kMaxReqs};
    config.verify_sizes = verify_graph_sizes(config.decode_sizes, kMaxReqs, kMaxVerified, 512);
    rows_ = std::make_unique<ReqToTokenPool>(kMaxReqs, kContextLen);
    for (std::optional<ExecutorAndRunner>* one : {&replaying_, &launching_}) {
      one->emplace(config, *rows_);
      (*one)->runner.emplace((*one)->executor, CommonPrefix(*rows_, kPageSize, 0));
    }
    replaying_->executor.record_graphs(
        [this](const GraphProgressInfo& graphs) { progress_.push_back(graphs); });
    add_requests();
  }

  // Adds requests with slots for their whole context, and computes their K/V.
  void add_requests() {
    requests_.reserve(kMaxReqs);
    for (int r = 0; r < kMaxReqs; ++r) {
      auto& request = requests_.emplace_back();
      request.row = *rows_->allocate();
      std::vector<TokenSlot> slots;
      // Pages of the requests are interleaved.
      for (int position = 0; position < kContextLen; ++position)
        slots.emplace_back((1 + position / kPageSize * kMaxReqs + r) * kPageSize + position % kPageSize);
      rows_->write(request.row, 0, slots);
      for (int position = 0; position < kContextLen; ++position)
        request.tokens.push_back((31 * r + 7 * position) % 2000);
      request.num_prompt = kContextLen;
      while (request.num_computed < kContextLen) {
        ScheduledStep chunk{.requests = {{&request, 512}}, .num_tokens = 512, .mode = ForwardMode::kExtend};
        for (std::optional<ExecutorAndRunner>* one : {&replaying_, &launching_}) (*one)->runner->run(chunk);
        request.num_computed += 512;
      }
    }
  }

  // A decode step in which request i has lengths[i] tokens; the last one is new.
  ScheduledStep make_step(const std::vector<int>& lengths) {
    ScheduledStep step{
        .requests = {}, .num_tokens = static_cast<int>(lengths.size()), .mode = ForwardMode::kDecode};
    for (size_t i = 0; i < lengths.size(); ++i) {
      requests_[i].num_computed = lengths[i] - 1;
      requests_[i].num_prompt = 1;
      requests_[i].tokens.assign(static_cast<size_t>(lengths[i]),
                                 31 * static_cast<int32_t>(i) + lengths[i] % 7);
      step.requests.push_back({&requests_[i], 1});
    }
    return step;
  }

  static std::vector<uint32_t> bits_of(const TensorView& logits) {
    const Tensor host = Tensor::empty({logits.shape[0], logits.shape[1]}, DType::kF32);
    cuda::OwnedStream stream(kGpu);
    cuda::copy(logits, host, stream.get());
    cuda::synchronize(stream.get());
    std::vector<uint32_t> bits(static_cast<size_t>(host.view().num_elements()));
    std::memcpy(bits.data(), host.view().data, host.view().num_bytes());
    return bits;
  }

  std::unique_ptr<ReqToTokenPool> rows_;
  std::optional<ExecutorAndRunner> replaying_, launching_;
  std::vector<Request> requests_;
  std::vector<GraphProgressInfo> progress_;
};

TEST_P(ReplayOnGpu, ReportsEachSizeBeforeRecordingLargestFirst) {
  std::vector<int> sizes, num_done;
  for (const GraphProgressInfo& graphs : progress_) {
    sizes.push_back(graphs.batch_size);
    num_done.push_back(graphs.num_done);
    EXPECT_EQ(graphs.num_sizes, 16);
  }
  // 2, 4 and 8 tokens per request, then decode steps.
  EXPECT_THAT(sizes,
              ElementsAre(kMaxReqs, kMaxReqs, kMaxReqs, 4, 4, 4, 2, 2, 2, 1, 1, 1, kMaxReqs, 4, 2, 1, 1));
  for (int i = 0; i < std::ssize(num_done); ++i) EXPECT_EQ(num_done[static_cast<size_t>(i)], i);
}

// Lengths below and above the threshold between the graphs for short and long requests.
TEST_P(ReplayOnGpu, MatchesTheBitsOfEagerStepsForAllLengths) {
  for (const std::vector<int>& lengths : std::vector<std::vector<int>>{{1},
                                                                       {2048},
                                                                       {2049},
                                                                       {3072},
                                                                       {17, 3000},
                                                                       {17, 900},
                                                                       {2048, 1, 64},
                                                                       {1, 2, 3, 4},
                                                                       {2048, 2048, 2047, 16, 15},
                                                                       {5, 2048, 65, 1, 1999, 128},
                                                                       {1, 1, 1, 1, 1, 1},
                                                                       {2}}) {
    SCOPED_TRACE(testing::Message() << lengths.size() << " requests, the first of " << lengths[0]);
    ScheduledStep step = make_step(lengths);
    const View<const int32_t> replayed = replaying_->runner->run(step);
    const std::vector<int32_t> replayed_tokens(replayed.begin(), replayed.end());
    const std::vector<uint32_t> replayed_bits = bits_of(replaying_->runner->logits());
    const View<const int32_t> launched = launching_->runner->run(step);
    EXPECT_EQ(replayed_tokens, std::vector<int32_t>(launched.begin(), launched.end()));
    EXPECT_EQ(replayed_bits, bits_of(launching_->runner->logits()));
  }
}

// Requests with different numbers of drafts, and some without, in padded steps.
TEST_P(ReplayOnGpu, MatchesTheBitsOfEagerStepsWithDrafts) {
  struct Part {
    int length, num_draft;
  };
  for (const std::vector<Part>& parts :
       std::vector<std::vector<Part>>{{{1, 1}},
                                      {{40, 7}},
                                      {{40, 4}},
                                      {{2046, 2}},
                                      {{2047, 1}},
                                      {{3000, 5}},
                                      {{17, 0}, {3000, 3}},
                                      {{17, 7}, {900, 7}},
                                      {{2048, 1}, {1, 0}, {64, 6}},
                                      {{1, 1}, {2, 2}, {3, 3}, {4, 4}},
                                      {{5, 0}, {2040, 7}, {65, 0}, {1, 0}, {9, 0}},
                                      {{1, 7}, {1, 7}, {1, 7}, {1, 7}, {1, 7}, {1, 7}}}) {
    SCOPED_TRACE(testing::Message() << parts.size() << " requests, the first of " << parts[0].length
                                    << " and " << parts[0].num_draft << " drafts");
    std::vector<int> lengths;
    for (const Part& part : parts) lengths.push_back(part.length);
    ScheduledStep step = make_step(lengths);
    step.mode = ForwardMode::kTargetVerify;
    for (size_t i = 0; i < parts.size(); ++i) {
      ScheduledRequest& request = step.requests[i];
      request.num_draft = parts[i].num_draft;
      request.num_new += parts[i].num_draft;
      step.num_tokens += parts[i].num_draft;
      request.request->draft.tokens.clear();
      for (int t = 0; t < parts[i].num_draft; ++t)
        request.request->draft.tokens.push_back(100 + 13 * t + static_cast<int32_t>(i));
    }
    const View<const int32_t> replayed = replaying_->runner->run(step);
    const std::vector<int32_t> replayed_tokens(replayed.begin(), replayed.end());
    const std::vector<uint32_t> replayed_bits = bits_of(replaying_->runner->logits());
    const View<const int32_t> launched = launching_->runner->run(step);
    EXPECT_EQ(replayed_tokens, std::vector<int32_t>(launched.begin(), launched.end()));
    EXPECT_EQ(replayed_bits, bits_of(launching_->runner->logits()));
    EXPECT_EQ(std::ssize(replayed_tokens), step.num_tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ReplayOnGpu,
                         testing::Combine(testing::Values("triton", "fa3", "flashinfer"),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" +
                                  std::string(to_string(std::get<1>(test.param)));
                         });

}  // namespace
}  // namespace attend
