#include "attend/backends/hybrid.h"

#include <gtest/gtest.h>

#include "attend/backends/table.h"
#include "tests/backends/small_model.h"

namespace attend::conformance {
namespace {

// Records the names of called functions.
class RecordingBackend : public AttentionBackend {
 public:
  // plan_depends_on_kv_len() returns true for this number of requests.
  RecordingBackend(std::string name, std::vector<std::string>& calls, int depends_on_kv_len = 0)
      : name_(std::move(name)), calls_(calls), depends_on_kv_len_(depends_on_kv_len) {}
  bool plan_depends_on_kv_len(int num_reqs) const override { return num_reqs == depends_on_kv_len_; }
  void plan(const ForwardBatch& batch, Stream&) override { record("plan", batch); }
  KvDestination destination(const AttentionLayer&, const ForwardBatch& batch) override {
    record("destination", batch);
    return {};
  }
  void forward(const AttentionLayer&, const AttentionInput&, const ForwardBatch& batch, Stream&) override {
    record("forward", batch);
  }

 private:
  void record(std::string_view function, const ForwardBatch& batch) {
    calls_.push_back(name_ + " " + std::string(function) + " " + std::string(to_string(batch.mode)));
  }

  std::string name_;
  std::vector<std::string>& calls_;
  int depends_on_kv_len_;
};

TEST(HybridBackend, RoutesEveryCallByThePhaseOfTheStep) {
  std::vector<std::string> calls;
  HybridBackend hybrid(std::make_unique<RecordingBackend>("p", calls),
                       std::make_unique<RecordingBackend>("d", calls));
  Stream stream;
  for (ForwardMode mode : {ForwardMode::kExtend, ForwardMode::kDecode, ForwardMode::kMixed,
                           ForwardMode::kTargetVerify, ForwardMode::kDraftExtend, ForwardMode::kIdle}) {
    const ForwardBatch batch{.mode = mode};
    hybrid.plan(batch, stream);
    hybrid.destination({}, batch);
    hybrid.forward({}, {}, batch, stream);
  }
  std::vector<std::string> expected;
  for (const char* step : {"p extend", "d decode", "p mixed", "d target_verify", "p draft_extend", "d idle"})
    for (const char* function : {"plan", "destination", "forward"})
      expected.push_back(std::string(step).insert(1, std::string(" ") + function));
  EXPECT_EQ(calls, expected);
}

TEST(HybridBackend, ForwardsPlanDependsOnKvLenToTheDecodeBackend) {
  std::vector<std::string> calls;
  const HybridBackend hybrid(std::make_unique<RecordingBackend>("p", calls, 1),
                             std::make_unique<RecordingBackend>("d", calls, 2));
  EXPECT_FALSE(hybrid.plan_depends_on_kv_len(1));
  EXPECT_TRUE(hybrid.plan_depends_on_kv_len(2));
}

Resolution make_resolution(std::string_view prefill, std::string_view decode) {
  return {.prefill = find_backend(backend_table(), prefill),
          .decode = find_backend(backend_table(), decode),
          .page_size = 4};
}

TEST(CreateBackend, RoutesPhasesToTwoBackendsOverOnePool) {
  SmallModel model({small_layer(0), small_layer(1)}, {22, 21}, 4);
  const auto backend = create_backend(make_resolution("fa3", "flashinfer"), model.context());
  EXPECT_NE(dynamic_cast<HybridBackend*>(backend.get()), nullptr);
  model.step(*backend, ForwardMode::kExtend, {9, 0});
  model.step(*backend, ForwardMode::kMixed, {1, 17});
  model.step(*backend, ForwardMode::kExtend, {8, 0});
  for (int i = 0; i < 4; ++i) model.step(*backend, ForwardMode::kDecode, {1, 1});
  model.expect_reference_results();
}

TEST(CreateBackend, MakesOneBackendOfTheSameNameTwice) {
  const SmallModel model({small_layer(0)}, {22, 21}, 4);
  const auto backend = create_backend(make_resolution("fa3", "fa3"), model.context());
  EXPECT_EQ(dynamic_cast<HybridBackend*>(backend.get()), nullptr);
}

TEST(WorkspaceBytes, AddsUpOverTwoDistinctBackends) {
  const SmallModel model({small_layer(0)}, {22, 21}, 4);
  const size_t fa3 = workspace_bytes(make_resolution("fa3", "fa3"), model.config());
  const size_t flashinfer = workspace_bytes(make_resolution("flashinfer", "flashinfer"), model.config());
  EXPECT_GT(fa3, 0u);
  EXPECT_EQ(workspace_bytes(make_resolution("fa3", "flashinfer"), model.config()), fa3 + flashinfer);
}

}  // namespace
}  // namespace attend::conformance
