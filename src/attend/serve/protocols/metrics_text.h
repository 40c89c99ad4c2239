// Metrics in Prometheus' text format, under the names that boards and routers already know.
#pragma once

#include <string>

#include "attend/engine/engine_metrics.h"
#include "attend/serve/http/exchange.h"

namespace attend::serve {

// Whose names and labels: one's, or both one after the other.
enum class MetricNames { kSglang, kVllm, kBoth };

std::string metrics_text(const EngineMetrics& engine, const HttpMetrics& http, const std::string& model_name,
                         MetricNames names = MetricNames::kSglang);

}  // namespace attend::serve
