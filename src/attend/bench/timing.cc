#include "attend/bench/timing.h"

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
  return median(times);
}

}  // namespace attend::bench
