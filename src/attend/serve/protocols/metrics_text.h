// Metrics in Prometheus' text format, under the names that boards and routers already know.
#pragma once

#include <string>

#include "attend/engine/engine_metrics.h"

namespace attend::serve {

// What the server counts, beside the engine.
struct HttpMetrics {
  int num_active_requests = 0;
  int64_t num_requests = 0;
  int64_t num_connections = 0;
  int64_t num_writes = 0;  // each of all that a connection had to send at a time
};

// Whose names and labels: one's, or both one after the other.
enum class MetricNames { kSglang, kVllm, kBoth };

std::string metrics_text(const EngineMetrics& engine, const HttpMetrics& http, const std::string& model_name,
                         MetricNames names = MetricNames::kSglang);

}  // namespace attend::serve
