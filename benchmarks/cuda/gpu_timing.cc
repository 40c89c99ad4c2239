#include "benchmarks/cuda/gpu_timing.h"

#include <algorithm>
#include <vector>

#include "attend/tensor/cuda_check.h"
#include "benchmarks/cuda/random_kernel.h"
#include "benchmarks/cuda/read_kernel.h"

namespace attend::bench {

double time_graph(Stream& stream, int repeats, const std::function<void(int)>& queue) {
  constexpr int kRounds = 5;
  queue(0);
  cuda::synchronize(stream);
  cuda::Graph graph(stream, [&] {
    for (int i = 0; i < repeats; ++i) queue(i);
  });
  graph.launch(stream);
  cuda::Event start(stream.device), stop(stream.device);
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    start.record(stream);
    graph.launch(stream);
    stop.record(stream);
    stop.synchronize();
    times.push_back(static_cast<double>(stop.milliseconds_since(start)) * 1e3 / repeats);
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

GpuFacts gpu_facts(Device device) {
  GpuFacts facts{};
  const auto read = [&](int& value, cudaDeviceAttr attribute) {
    cuda::check(cudaDeviceGetAttribute(&value, attribute, device.index), "device attribute");
  };
  constexpr int kKilo = 1000;
  read(facts.sm_clock, cudaDevAttrClockRate);
  read(facts.memory_clock, cudaDevAttrMemoryClockRate);
  facts.sm_clock /= kKilo;
  facts.memory_clock /= kKilo;
  cuda::check(cudaDriverGetVersion(&facts.driver_version), "driver version");
  cuda::check(cudaRuntimeGetVersion(&facts.runtime_version), "runtime version");
  return facts;
}

double fastest_read(Stream& stream) {
  constexpr int64_t kBytes = int64_t{4} << 30;
  const Tensor data = cuda::empty({kBytes}, DType::kU8, stream.device);
  launch_fill_random(data.view().data, kBytes / 2, 1.0f, stream.handle);
  const Tensor sink = cuda::empty({1}, DType::kF32, stream.device);
  const int num_sms = cuda::device_info(stream.device).num_sms;
  double fastest = 0.0;
  for (const int ctas_per_sm : {2, 4, 8, 16}) {
    const double microseconds = time_graph(stream, 3, [&](int) {
      launch_read(data.view().data, static_cast<size_t>(kBytes), sink.as<float>(), ctas_per_sm * num_sms,
                  stream.handle);
    });
    fastest = std::max(fastest, static_cast<double>(kBytes) / microseconds);
  }
  return fastest;
}

}  // namespace attend::bench
