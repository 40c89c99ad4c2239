// Times a long prefix that returns from the host tier of the prefix cache to a GPU: the time to the first
// token, compared with computing it, the rate of the copies, compared with that of the link, and the steps of
// other requests meanwhile. The model has the shape of Llama 3.1 8B and random weights.
//
//   cuda_host_tier_bench [tokens of the prefix] [page size]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "attend/bench/model/model_shapes.h"
#include "attend/engine/engine.h"
#include "attend/kernels/kv_store/copy_pages.h"
#include "attend/tensor/cuda.h"

namespace {

using namespace attend;
using Clock = std::chrono::steady_clock;
using Tokens = std::vector<int32_t>;

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr int kNumStreams = 8, kStreamPrompt = 512, kStreamOutput = 3000;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Seconds of `queue` on the stream, the median of five calls.
template <class Queue>
double time_on_gpu(Stream& stream, const Queue& queue) {
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const cuda::DeviceScope scope(stream.device);
    cuda::Event start(kGpu), end(kGpu);
    start.record(stream);
    queue();
    end.record(stream);
    end.synchronize();
    seconds.push_back(1e-3 * static_cast<double>(end.milliseconds_since(start)));
  }
  return median(seconds);
}

struct Link {
  double to_gpu = 0, to_host = 0;  // bytes per second
};

// Rates of one large copy of page-locked memory in each direction, and of copies of scattered pages.
Link measure_link(int page_size) {
  constexpr int64_t kBytes = 512 << 20;
  cuda::OwnedStream stream(kGpu);
  const Tensor host = cuda::empty_pinned({kBytes}, DType::kU8, kGpu),
               device = cuda::zeros({kBytes}, DType::kU8, kGpu);
  const auto rate = [&](const auto& queue) {
    return static_cast<double>(kBytes) / time_on_gpu(stream.get(), queue);
  };
  const Link link{.to_gpu = rate([&] { cuda::copy(host, device, stream.get()); }),
                  .to_host = rate([&] { cuda::copy(device, host, stream.get()); })};
  std::printf("link: %.1f GB/s to the GPU, %.1f to the host (one copy of %lld MiB)\n", 1e-9 * link.to_gpu,
              1e-9 * link.to_host, static_cast<long long>(kBytes >> 20));
  // Pages of 32 layers of K and V with 8 heads of 128 elements in 16 bits.
  constexpr int64_t kParts = 64;
  const int64_t part_bytes = int64_t{page_size} * 8 * 128 * 2, num_pages = kBytes / (kParts * part_bytes);
  std::vector<kernels::PagePart> parts;
  for (int64_t p = 0; p < kParts; ++p)
    parts.push_back({.cache = static_cast<std::byte*>(device.view().data) + p * num_pages * part_bytes,
                     .stride = part_bytes,
                     .offset = p * part_bytes,
                     .num_bytes = part_bytes});
  const kernels::PageTiles tiles(parts, kGpu);
  std::vector<kernels::PageCopy> pages;
  for (int64_t page = 0; page < num_pages; ++page)
    pages.push_back({.page = static_cast<int32_t>(page),
                     .host = static_cast<std::byte*>(host.view().data) + page * kParts * part_bytes});
  std::ranges::shuffle(pages, std::mt19937(1));
  for (const auto method : {kernels::CopyMethod::kCopyEngine, kernels::CopyMethod::kKernel})
    for (const auto direction : {kernels::CopyDirection::kToCache, kernels::CopyDirection::kToHost}) {
      const bool to_cache = direction == kernels::CopyDirection::kToCache;
      const double pages_rate =
          rate([&] { kernels::copy_pages(tiles, pages, direction, stream.get(), method); });
      std::printf("pages of %d tokens, %s: %.1f GB/s %s, %.0f %% of the link\n", page_size,
                  method == kernels::CopyMethod::kKernel ? "kernel" : "copy engine", 1e-9 * pages_rate,
                  to_cache ? "to the GPU" : "to the host",
                  100.0 * pages_rate / (to_cache ? link.to_gpu : link.to_host));
    }
  return link;
}

class Run {
 public:
  Run(const EngineConfig& config) : engine_(config) {}

  Engine& engine() { return engine_; }

  RequestId submit(const Tokens& prompt, int num_output) {
    return engine_.submit(prompt, {.max_new_tokens = num_output, .temperature = 0.0f, .ignore_eos = true});
  }
  // Returns the seconds of one step.
  double step() {
    const auto start = Clock::now();
    is_busy_ = engine_.step([&](const RequestOutput& output) {
      num_tokens_[output.id] += std::ssize(output.token_ids);
      num_host_tokens_ = output.request.num_host_cached_tokens;
    });
    return seconds_since(start);
  }
  // Steps until a request has a token. Returns the seconds of the steps.
  std::vector<double> step_until_token(RequestId id) {
    std::vector<double> seconds;
    while (num_tokens_[id] == 0) seconds.push_back(step());
    return seconds;
  }
  void drain() {
    do step();
    while (is_busy_);
  }
  int num_host_tokens() const { return num_host_tokens_; }  // of the last output's request

 private:
  Engine engine_;
  std::map<RequestId, int64_t> num_tokens_;
  bool is_busy_ = false;
  int num_host_tokens_ = 0;
};

Tokens random_tokens(int count, unsigned seed) {
  std::mt19937 generator(seed);
  Tokens tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(generator() % 100'000);
  return tokens;
}

}  // namespace

int main(int argc, char** argv) {
  if (cuda::device_count() == 0) {
    std::printf("host_tier_bench: this machine has no GPU that this build can use\n");
    return 0;
  }
  const int prefix = argc > 1 ? std::atoi(argv[1]) : 60'000;
  EngineConfig config;
  const int page_size = argc > 2 ? std::atoi(argv[2]) : 64;
  for (const int small : {16, 4, 1}) measure_link(small);
  config.backend_options.page_size = page_size;
  const Link link = measure_link(page_size);

  config.model = bench::shape_model("llama-3.1-8b");
  config.load_format = LoadFormat::kDummy;
  config.device = kGpu;
  config.dtype = DType::kBF16;
  config.context_length = prefix + 4096;
  config.max_running_requests = kNumStreams + 1;
  config.chunked_prefill_size = 8192;
  // Room for one prefix and the streams, so the next prefix evicts it.
  config.max_total_tokens = prefix + kNumStreams * (kStreamPrompt + kStreamOutput) + 4096;
  constexpr double kTokenBytes = 2.0 * 32 * 8 * 128 * 2;
  config.hierarchical_cache = {.enabled = true, .size_gb = 1e-9 * 3.6 * kTokenBytes * prefix};
  const auto start = Clock::now();
  Run run(config);
  std::printf("engine after %.1f s; host tier of %.1f GB\n", seconds_since(start),
              config.hierarchical_cache.size_gb);

  // Each prompt is evicted by the two others.
  const Tokens prompts[] = {random_tokens(prefix, 1), random_tokens(prefix, 2), random_tokens(prefix, 3)};
  std::vector<double> cold, warm;
  for (int round = 0; round < 6; ++round) {
    const auto submitted = Clock::now();
    run.step_until_token(run.submit(prompts[round % 3], 1));
    (round < 3 ? cold : warm).push_back(seconds_since(submitted));
    if (round >= 3 && run.num_host_tokens() < prefix - page_size - 1)
      std::printf("round %d: only %d tokens from the host\n", round, run.num_host_tokens());
    run.drain();
  }
  const double bytes = kTokenBytes * run.num_host_tokens();
  const double rate = bytes / median(warm);
  std::printf("first token of %d tokens: computed %.1f ms, from the host %.1f ms: %.3f (at most 0.10)\n",
              prefix, 1e3 * cold[1], 1e3 * median(warm), median(warm) / cold[1]);
  std::printf("%.2f GB in this time: %.1f GB/s, %.0f %% of the link (at least 80)\n", 1e-9 * bytes,
              1e-9 * rate, 100.0 * rate / link.to_gpu);

  RequestId last = 0;
  for (int i = 0; i < kNumStreams; ++i)
    last = run.submit(random_tokens(kStreamPrompt, 100 + static_cast<unsigned>(i)), kStreamOutput);
  run.step_until_token(last);
  const auto steps = [&](int count) {
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i) seconds.push_back(run.step());
    return seconds;
  };
  steps(40);
  std::vector<double> slowdowns;
  for (int round = 0; round < 4; ++round) {
    std::vector<double> alone = steps(60);
    const auto submitted = Clock::now();
    const RequestId id = run.submit(prompts[round % 3], 1);
    std::vector<double> copying = run.step_until_token(id);
    const double first_token = seconds_since(submitted);
    // The last steps compute the end of the prompt.
    copying.resize(copying.size() > 4 ? copying.size() - 2 : copying.size());
    steps(10);
    for (const double seconds : steps(60)) alone.push_back(seconds);
    slowdowns.push_back(mean(copying) / mean(alone) - 1.0);
    std::printf(
        "%d streams: a step takes %.3f ms, %.3f ms (median %.3f, first %.3f) in %zu steps with copies: "
        "%+.1f %% (at most +3); first token after %.1f ms\n",
        kNumStreams, 1e3 * mean(alone), 1e3 * mean(copying), 1e3 * median(copying), 1e3 * copying.front(),
        copying.size(), 100.0 * slowdowns.back(), 1e3 * first_token);
  }
  // Pages of a computed prompt are copied to the host after its last chunk.
  std::vector<double> alone = steps(60);
  run.step_until_token(run.submit(random_tokens(prefix / 2, 4), 1));
  const std::vector<double> copying = steps(12);
  steps(20);
  for (const double seconds : steps(60)) alone.push_back(seconds);
  std::printf("with copies to the host: %.3f ms, alone %.3f ms: %+.1f %%\n", 1e3 * mean(copying),
              1e3 * mean(alone), 100.0 * (mean(copying) / mean(alone) - 1.0));
}
