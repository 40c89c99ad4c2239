// Memory allocation of backends: create() allocates everything, as much as workspace_bytes() reported, and
// steps allocate nothing.
#include <gtest/gtest.h>

#include "attend/attention/resolver.h"
#include "attend/backends/table.h"
#include "tests/backends/small_model.h"
#include "tests/support/count_allocations.h"

namespace attend::conformance {
namespace {

using testing_support::allocated_bytes;
using testing_support::num_allocations;

// The reference may allocate in a step, since it is a slow specification.
constexpr std::string_view kReference = "torch_native";

std::vector<AttentionLayer> windowed_and_full_layers() {
  std::vector<AttentionLayer> layers{small_layer(0), small_layer(1), small_layer(2)};
  layers[1].window_left = 7;
  layers[2].logit_cap = 20.0f;
  return layers;
}

int64_t allocations_of_step(SmallModel& model, AttentionBackend& backend, ForwardMode mode,
                            const std::vector<int>& num_new) {
  Stream stream;
  const ForwardBatch batch = model.prepare(mode, num_new).batch();
  const int64_t before = num_allocations();
  backend.plan(batch, stream);
  for (size_t i = 0; i < model.layers().size(); ++i)
    attend_layer(backend, model.layers()[i], model.input(i), batch, stream);
  return num_allocations() - before;
}

TEST(Allocation, IsCounted) {
  const int64_t before = num_allocations();
  const Tensor tensor = Tensor::zeros({100}, DType::kF32);
  const std::vector<int> numbers(100);
  EXPECT_GE(num_allocations() - before, 2);
}

TEST(Allocation, DoesNotHappenInAStep) {
  for (const BackendEntry& entry : backend_table()) {
    if (entry.name == kReference || !entry.mha.supports_any_phase()) continue;
    const int page_size = entry.mha.page_sizes.contains(4) ? 4 : 128;
    SmallModel model(windowed_and_full_layers(), {900, 40, 40}, page_size);
    const auto backend = model.create(entry.name);
    allocations_of_step(model, *backend, ForwardMode::kExtend, {5, 0, 0});  // starts the threads
    EXPECT_EQ(allocations_of_step(model, *backend, ForwardMode::kExtend, {800, 30, 0}), 0) << entry.name;
    EXPECT_EQ(allocations_of_step(model, *backend, ForwardMode::kMixed, {1, 1, 20}), 0) << entry.name;
    EXPECT_EQ(allocations_of_step(model, *backend, ForwardMode::kDecode, {1, 1, 1}), 0) << entry.name;
    EXPECT_EQ(allocations_of_step(model, *backend, ForwardMode::kDecode, {1, 0, 0}), 0) << entry.name;
  }
}

TEST(Allocation, DoesNotHappenInAnMlaStep) {
  for (const BackendEntry& entry : backend_table()) {
    if (entry.name == kReference || !entry.mla.supports_any_phase()) continue;
    const AttentionCase c{.requests = {{1, 90}, {1, 300}},
                          .num_q_heads = 16,
                          .num_kv_heads = 1,
                          .head_dim_qk = 576,
                          .head_dim_v = 512,
                          .rope_dim = 64,
                          .page_size = entry.mla.page_sizes.contains(64)  ? 64
                                       : entry.mla.page_sizes.contains(1) ? 1
                                                                          : 128};
    const BackendCase step(c, ForwardMode::kDecode);
    const auto backend = step.create(entry, false);
    step.run(*backend);  // starts the threads
    const int64_t before = num_allocations();
    step.run(*backend);
    EXPECT_EQ(num_allocations() - before, 0) << entry.name;
  }
}

// Returns the bytes that create() allocates.
int64_t created_bytes(const SmallModel& model, const BackendEntry& entry, bool deterministic) {
  BackendContext context = model.context();
  context.config = model.config(deterministic);
  const int64_t before = allocated_bytes();
  const auto backend = entry.create(context);
  return allocated_bytes() - before;
}

// The backend object, its config, and reference counters of tensors.
constexpr int64_t kBookkeepingBytes = 8192;

TEST(Workspace, EqualsWhatCreateAllocates) {
  for (const BackendEntry& entry : backend_table()) {
    if (!entry.mha.supports_any_phase()) continue;
    const SmallModel model(windowed_and_full_layers(), {4096, 4096, 300}, 4, /*halves=*/true);
    for (bool deterministic : {false, true}) {
      const auto reported = static_cast<int64_t>(entry.workspace_bytes(model.config(deterministic)));
      const int64_t created = created_bytes(model, entry, deterministic);
      EXPECT_GE(created, reported) << entry.name;
      EXPECT_LE(created, reported + kBookkeepingBytes) << entry.name;
    }
  }
}

TEST(Workspace, IsAnUpperBoundIfWindowLayersHaveNoSeparateHalf) {
  for (const BackendEntry& entry : backend_table()) {
    if (!entry.mha.supports_any_phase()) continue;
    const SmallModel model(windowed_and_full_layers(), {4096, 4096, 300}, 4, /*halves=*/false);
    EXPECT_LE(created_bytes(model, entry, false),
              static_cast<int64_t>(entry.workspace_bytes(model.config())) + kBookkeepingBytes)
        << entry.name;
  }
}

}  // namespace
}  // namespace attend::conformance
