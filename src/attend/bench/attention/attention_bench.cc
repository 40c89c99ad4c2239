#include "attend/bench/attention/attention_bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "attend/attention/resolver.h"
#include "attend/base/parallel.h"
#include "attend/bench/attention/attention_case.h"
#include "attend/bench/attention/case_tensors.h"
#include "attend/bench/probes.h"
#include "attend/bench/timing.h"
#include "attend/kernels/attention/cpu/attention.h"
#include "attend/kernels/common/kernel_choices.h"
#include "attend/tensor/arena.h"

namespace attend::bench {
namespace {

constexpr int kMinRepeats = 5, kMaxRepeats = 200;

std::string size_name(size_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.0f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

double max_rate(int repeats, const auto& rate) {
  double best = 0;
  for (int i = 0; i < repeats; ++i) best = std::max(best, rate());
  return best;
}

bool has_tiles() {
  const std::vector<Arithmetic> available = available_arithmetic();
  return std::find(available.begin(), available.end(), Arithmetic::kAmxBf16) != available.end();
}

// Returns 0 if there are no matrix tiles.
double tiles_per_second(int threads) {
  if (!has_tiles()) return 0;
  return max_rate(3, [&] { return operations_per_second(Arithmetic::kAmxBf16, threads); });
}

// Returns "amx tiles", or "amx tiles, avx512" if tiles of rows use different kernels.
std::string kernel_names(const std::vector<kernels::KernelChoice>& choices) {
  std::string names;
  for (const kernels::KernelChoice& choice : choices)
    if (names.find(choice.kernel) == std::string::npos) names += (names.empty() ? "" : ", ") + choice.kernel;
  return names;
}

// Returns the dtype of exact multiplication: pairs of bfloat16 if bfloat16 can represent both operands, else
// float32.
DType operand_dtype(const AttentionCase& spec) {
  const bool in_pairs =
      spec.q_dtype == DType::kBF16 && (spec.kv_dtype == DType::kBF16 || is_fp8(spec.kv_dtype));
  return in_pairs ? DType::kBF16 : DType::kF32;
}

CaseResult time_case(const AttentionCase& spec, const CaseTensors& tensors, Arithmetic vectors, int threads,
                     double seconds) {
  kernels::AttentionPlan plan(tensors.limits(threads), Device{});
  Stream stream;
  plan.plan(tensors.batch(), {}, stream);
  std::vector<double> case_seconds, peak;
  std::vector<std::vector<double>> rates(read_methods().size());
  int layer = 0;
  const auto next_layer = [&] { return layer = (layer + 1) % tensors.num_layers(); };
  const kernels::cpu::Isa isa = kernels::cpu::attention_isa();
  std::string kernel;
  {
    const kernels::KernelChoices choices;
    tensors.attend(next_layer(), plan, isa);
    kernel = kernel_names(choices.all());
  }
  const double end = seconds_now() + seconds;
  while ((seconds_now() < end || case_seconds.size() < kMinRepeats) && case_seconds.size() < kMaxRepeats) {
    peak.push_back(operations_per_second(vectors, threads));
    // Methods alternate, since a second pass over a layer may find it in a cache.
    const size_t way = case_seconds.size() % rates.size();
    rates[way].push_back(read_bytes_per_second(tensors.kv_bytes(next_layer()), threads, read_methods()[way]));
    next_layer();
    case_seconds.push_back(measure_seconds([&] { tensors.attend(layer, plan, isa); }));
  }
  const double took = median(case_seconds);
  const double read_seconds = static_cast<double>(spec.kv_bytes()) / fastest_read_method(rates).rate;
  const double peak_seconds = spec.operations() / median(peak);
  const bool by_read = read_seconds > peak_seconds;
  const double amount = by_read ? static_cast<double>(spec.kv_bytes()) : spec.operations();
  const size_t rotated = tensors.kv_bytes(0).size() * static_cast<size_t>(tensors.num_layers());
  return {.name = spec.name(),
          .threads = threads,
          .us = took * 1e6,
          .value = amount / took * 1e-9,
          .unit = by_read ? "GB/s" : "GFLOP/s",
          .limit = amount / std::max(read_seconds, peak_seconds) * 1e-9,
          .bound = by_read ? "read " + size_name(rotated) : std::string(to_string(vectors)),
          .repeats = static_cast<int>(case_seconds.size()),
          .tiles_limit = by_read ? 0 : 1e-9 * tiles_per_second(threads),
          .kernel = kernel};
}

void add_machine_figures(std::span<const std::byte> memory, const std::vector<int>& thread_counts,
                         std::vector<MachineFigure>& figures) {
  for (size_t bytes : {size_t{1} << 20, size_t{16} << 20, size_t{128} << 20, memory.size()})
    for (int threads : thread_counts) {
      if (bytes > memory.size()) continue;
      // The first pass fills the caches.
      double fastest = 0;
      for (const ReadMethod& way : read_methods()) {
        const auto rate = [&] { return read_bytes_per_second(memory.first(bytes), threads, way); };
        rate();
        fastest = std::max(fastest, max_rate(3, rate));
      }
      figures.push_back({"read " + size_name(bytes), threads, 1e-9 * fastest, "GB/s"});
    }
  for (Arithmetic arithmetic : available_arithmetic())
    for (int threads : thread_counts)
      figures.push_back({std::string(to_string(arithmetic)), threads,
                         1e-9 * max_rate(3, [&] { return operations_per_second(arithmetic, threads); }),
                         "GFLOP/s"});
}

}  // namespace

Report bench_attention(const AttentionBenchOptions& options) {
  const std::vector<AttentionCase> cases = attention_cases(options.filter);
  const bool needs_memory = std::any_of(
      cases.begin(), cases.end(), [](const AttentionCase& c) { return c.residency == Residency::kMemory; });
  size_t bytes = needs_memory ? memory_resident_bytes() : 0;
  for (const AttentionCase& c : cases) bytes = std::max(bytes, static_cast<size_t>(c.kv_bytes()));
  Arena arena(Arena::padded_bytes(bytes), "bench");
  const Tensor memory = arena.allocate({static_cast<int64_t>(bytes)}, DType::kU8);
  const std::span<std::byte> all(static_cast<std::byte*>(memory.view().data), bytes);
  std::fill(all.begin(), all.end(), std::byte{1});

  Report report{.bench = "attention",
                .machine = detect_cpu().name,
                .instruction_set = std::string(to_string(kernels::cpu::attention_isa())),
                .threads = num_threads(),
                .has_tiles = has_tiles()};
  std::vector<int> thread_counts = options.threads;
  if (thread_counts.empty()) {
    thread_counts.push_back(1);
    if (report.threads > 1) thread_counts.push_back(report.threads);
  }
  add_machine_figures(all, thread_counts, report.figures);
  for (const AttentionCase& spec : cases) {
    const CaseTensors tensors(spec, all);
    for (int threads : thread_counts) {
      report.cases.push_back(time_case(spec, tensors, best_vectors(threads, operand_dtype(spec)), threads,
                                       options.seconds_per_case));
      if (options.on_case) options.on_case(report);
    }
  }
  return report;
}

}  // namespace attend::bench
