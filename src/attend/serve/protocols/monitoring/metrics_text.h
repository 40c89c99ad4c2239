// Metrics in Prometheus' text format, with the names that dashboards and routers expect.
#pragma once

#include <string>

#include "attend/engine/engine_metrics.h"
#include "attend/serve/http/exchange.h"

namespace attend::serve {

// Set of names and labels: SGLang's, vLLM's, or both in sequence.
enum class MetricNames { kSglang, kVllm, kBoth };

std::string metrics_text(const EngineMetrics& engine, const HttpMetrics& http, const std::string& model_name,
                         MetricNames names = MetricNames::kSglang);

}  // namespace attend::serve
