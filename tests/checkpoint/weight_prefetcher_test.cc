#include "attend/checkpoint/weight_prefetcher.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>

#include "attend/checkpoint/hf/hf_checkpoint.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::bytes_of;
using test::expect_error;
using test::safetensors_bytes;
using test::TempDir;
using test::TestTensor;

std::string shard_with(const std::string& name, float value) {
  const std::vector<TestTensor> tensors{{name, "F32", {1}, bytes_of({value})}};
  return safetensors_bytes(tensors);
}

TEST(WeightPrefetcher, OpensTheFilesOfADirectory) {
  const TempDir dir;
  dir.write("one.safetensors", shard_with("a", 1.0f));
  dir.write("two.safetensors", shard_with("b", 2.0f));
  dir.write("model.safetensors.index.json",
            R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const HfCheckpoint checkpoint(dir.path());
  WeightPrefetcher ahead(checkpoint);
  const std::shared_ptr<const CheckpointTensors> weights = ahead.take();
  EXPECT_EQ(*weights->tensor("a").as<float>(), 1.0f);
  EXPECT_EQ(*weights->tensor("b").as<float>(), 2.0f);
}

// The engine reports errors of configs, tokenizers and prompts first.
TEST(WeightPrefetcher, DefersErrorsUntilTake) {
  const TempDir dir;
  const HfCheckpoint checkpoint(dir.path());
  { const WeightPrefetcher unused(checkpoint); }
  WeightPrefetcher absent(checkpoint);
  expect_error(ErrorCode::kNotFound, {"expected model.safetensors"}, [&] { absent.take(); });
  dir.write("model.safetensors", "no header");
  WeightPrefetcher corrupt(checkpoint);
  expect_error(ErrorCode::kCorruptFile, {"model.safetensors"}, [&] { corrupt.take(); });
}

long page_faults() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

// Reads one float of each page. A sanitizer accesses its shadow memory at each read, which also faults, so it
// is disabled here.
[[gnu::no_sanitize("address", "thread")]] void touch_pages(const float* floats, int64_t num_floats) {
  const volatile float* const memory = floats;
  for (int64_t i = 0; i < num_floats; i += 1024) memory[i];
}

TEST(PrefetchAll, MapsThePagesOfEveryTensor) {
  if (madvise(nullptr, 0, MADV_POPULATE_READ) != 0 && errno == EINVAL)
    GTEST_SKIP() << "a kernel without MADV_POPULATE_READ";
  constexpr int64_t kNumFloats = 8 << 20;
  const TempDir dir;
  const std::vector<TestTensor> tensors{
      {"a", "F32", {kNumFloats}, std::string(static_cast<size_t>(kNumFloats) * sizeof(float), '\1')}};
  dir.write("model.safetensors", safetensors_bytes(tensors));
  const auto faults_of_a_pass = [&](bool stops) {
    const HfTensors weights(dir.path());
    const std::atomic<bool> stop = stops;
    weights.prefetch_all(stop);
    const Tensor tensor = weights.tensor("a");
    const auto* const floats = tensor.as<float>();
    const long before = page_faults();
    touch_pages(floats, kNumFloats);
    return page_faults() - before;
  };
  // At least one fault per huge page; pages of the code may add a few.
  EXPECT_LT(faults_of_a_pass(/*stops=*/false), 8);
  EXPECT_GE(faults_of_a_pass(/*stops=*/true), 16);
}

TEST(PrefetchAll, StopsWhereAFileWasTruncated) {
  const TempDir dir;
  const auto file = dir.write("model.safetensors", shard_with("a", 1.0f));
  const HfTensors weights(dir.path());
  std::filesystem::resize_file(file, 0);
  weights.prefetch_all(std::atomic<bool>(false));
  expect_error(ErrorCode::kCorruptFile, {"truncated"},
               [&] { weights.fetch("a", 0, weights.entry("a").num_bytes(), [](size_t) {}); });
}

}  // namespace
}  // namespace attend
