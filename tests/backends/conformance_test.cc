// Conformance of every row of the table on the CPU and on a GPU, through plan() and forward() with real
// pools: a declared
// capability is tested, and anything else must be rejected.
#include <gtest/gtest.h>

#include <map>
#include <span>
#include <string>

#include "attend/attention/resolver.h"
#include "attend/backends/table.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/tensor/cuda.h"
#include "tests/backends/backend_case.h"
#include "tests/kernels/conformance/cases/cases.h"
#include "tests/kernels/conformance/cases/random.h"

namespace attend::conformance {
namespace {

constexpr Device kCpu{}, kGpu{DeviceType::kCuda, 0};

// Default row of the table for a device.
std::string_view default_for(Device device) { return device == kCpu ? "cpu" : "triton"; }

// Hardware that a row is tested for. Every contract runs on a CPU. A GPU represents the architecture on which
// the contract supports most, since all contracts use the same kernels.
Hardware hardware_for(const BackendEntry& entry, KvKind kind, Device device) {
  if (device == kCpu) return {.architecture = Architecture::kCpu, .name = "a CPU"};
  const Capability& can = entry.capability(kind);
  const auto num_supported = [&](Architecture architecture) {
    return can.prefill.contains(architecture) + can.decode.contains(architecture) +
           can.deterministic.contains(architecture);
  };
  const auto architectures = {Architecture::kHopper, Architecture::kBlackwell,
                              Architecture::kBlackwellGeforce};
  return {.architecture = std::ranges::max(architectures, {}, num_supported), .name = "a GPU"};
}

constexpr int kPageSizes[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};

// A case as a step of one mode for one backend.
struct Trial {
  AttentionCase spec;
  ForwardMode mode;
  bool deterministic;
  Device device;
  bool indexer = false;  // the model has an indexer that selects all keys of the case

  Requirement requirement() const {
    Requirement needs = requirement_of_case(spec, mode, deterministic);
    needs.indexer = indexer;
    return needs;
  }
  std::vector<std::string> rejections_by(const BackendEntry& entry) const {
    const Requirement needs = requirement();
    return rejection_reasons(entry, to_phase(mode), needs, hardware_for(entry, needs.kind, device),
                             spec.page_size,
                             /*is_requested_by_name=*/true);
  }
};

// CPU-only rows do not run on GPUs.
bool runs_on(const BackendEntry& entry, KvKind kind, Device device) {
  const Capability& can = entry.capability(kind);
  if (device == kCpu || !can.supports_any_phase()) return can.supports_any_phase();
  const Architecture architecture = hardware_for(entry, kind, device).architecture;
  return can.prefill.contains(architecture) || can.decode.contains(architecture);
}

// Mode of a case. Cases that fit several modes alternate between them.
ForwardMode mode_for(const AttentionCase& c, size_t case_idx) {
  if (c.tree != TreeShape::kNone) return ForwardMode::kTargetVerify;
  if (c.requests.empty()) return ForwardMode::kIdle;
  if (c.max_seqlen_q() - c.max_seqlen_q_slack <= 1) return ForwardMode::kDecode;
  constexpr ForwardMode kModes[] = {ForwardMode::kExtend, ForwardMode::kMixed, ForwardMode::kDraftExtend,
                                    ForwardMode::kTargetVerify};
  return kModes[case_idx % std::size(kModes)];
}

Trial make_trial(const AttentionCase& c, size_t case_idx, Device device) {
  return {.spec = without_backend_choices(c),
          .mode = mode_for(c, case_idx),
          .deterministic = c.split_rule == kernels::SplitRule::kFixed,
          .device = device};
}

// Limits every request to at most one new token.
void limit_to_decode(AttentionCase& c) {
  c.tree = TreeShape::kNone;
  for (Lengths& lengths : c.requests) lengths.seqlen_q = std::min(lengths.seqlen_q, 1);
}

// Removes from the trial what a backend does not support, so that the rest of the case is tested. The
// backend must reject what is left (cross attention, a dtype).
Trial within_limits(Trial trial, const BackendEntry& entry, size_t case_idx) {
  const Capability& can = entry.capability(trial.requirement().kind);
  if (!can.supports_any_phase()) return trial;
  AttentionCase& c = trial.spec;
  trial.indexer = can.indexer;
  if (!can.window) c.window_left = -1;
  if (!can.window || !can.bidirectional) c.window_right = 0;
  if (!can.chunk) c.chunk = 0;
  if (!can.sinks) c.sinks = false;
  if (!can.kv_dtypes.contains(c.kv_dtype))
    c.kv_dtype = can.kv_dtypes.contains(DType::kF8E4M3) ? DType::kF8E4M3 : c.q_dtype;
  if (c.is_mla() && can.head_dim_rule == HeadDimRule::kExactly) {
    c.head_dim_qk = can.head_dims.qk;
    c.head_dim_v = can.head_dims.v;
    c.rope_dim = c.head_dim_qk - c.head_dim_v;
  }
  if (can.num_q_heads[0] != 0) c.num_q_heads = can.num_q_heads[0];
  if (c.tree == TreeShape::kTree && can.speculation == Speculation::kChain) c.tree = TreeShape::kChain;
  if (can.speculation == Speculation::kNone) limit_to_decode(c);
  if (can.prefill.empty() || can.speculation == Speculation::kNone)
    trial.mode = mode_for(c, 3);  // multi-token steps become target_verify
  trial.deterministic = trial.deterministic && !can.deterministic.empty();

  const PageSizes sizes = page_sizes_for(can, trial.requirement());
  const size_t every = c.is_mla() ? 4 : 2;  // MLA has fewer cases, so more of them change the page size
  if (sizes.contains(c.page_size) && case_idx % every == 0) return trial;
  std::vector<int> supported;
  for (int size : kPageSizes)
    if (sizes.contains(size)) supported.push_back(size);
  c.page_size = supported.at(case_idx % supported.size());
  return trial;
}

// Expected results of a case and its variations, each computed once.
class ExpectedResults {
 public:
  const Expected& get(AttentionCase c) {
    if (!c.shared_prefix) c.page_size = 1;  // the page size does not matter
    c.page_order = PageOrder::kSequential;
    const auto [found, is_new] = results_.try_emplace(to_literal(c));
    if (is_new) found->second = expected_result(c);
    return found->second;
  }

 private:
  std::map<std::string, Expected> results_;
};

// Returns a description of the problem, or an empty string.
std::string run_trial(const Trial& trial, const BackendEntry& entry, const Expected& expected) {
  BackendCase step(trial.spec, trial.mode, trial.device);
  const auto backend = step.create(entry, trial.deterministic);
  step.run(*backend);
  if (std::string problem = step.problem(expected); !problem.empty()) return problem;
  const auto bits = step.result_bytes();
  step.poison_results();
  step.run(*backend);
  return step.result_bytes() == bits ? "" : "a second run gave other bits";
}

// Cases for a GPU are run with the dtypes of its tensor cores too.
std::vector<AttentionCase> valid_steps(const std::vector<AttentionCase>& cases, Device device) {
  std::vector<AttentionCase> steps;
  const auto add = [&](const std::vector<AttentionCase>& more) {
    std::ranges::copy_if(more, std::back_inserter(steps), is_valid_step);
  };
  add(cases);
  if (device == kGpu) add(on_tensor_cores(cases));
  return steps;
}

std::vector<AttentionCase> mla_steps_for(Device device) {
  std::vector<AttentionCase> steps = valid_steps(mla_conformance_cases(), device);
  for (AttentionCase c : valid_steps(scaled_row_cases(), device)) {
    c.kv_dtype = DType::kU8;
    steps.push_back(c);
  }
  return steps;
}

// Returns true if a row runs a case. Rows share their code, so the default row of the device runs every
// case, and each other row a third of them, chosen by its index. All rows run all MLA cases, which are few.
bool runs_case(const BackendEntry& entry, const AttentionCase& c, size_t case_idx, Device device) {
  const auto row = static_cast<size_t>(&entry - backend_table().data());
  return c.is_mla() || entry.name == default_for(device) ||
         Random(case_idx).below(3) == static_cast<int>(row % 3);
}

// Runs the cases part, part + num_parts, ... with every backend that does not reject them.
void run_part(const std::vector<AttentionCase>& cases, Device device, size_t part, size_t num_parts) {
  std::map<std::string_view, int> num_failed;
  int num_runs = 0;
  for (size_t i = part; i < cases.size(); i += num_parts) {
    const Trial trial = make_trial(cases[i], i, device);
    ExpectedResults expected;
    for (const BackendEntry& entry : backend_table()) {
      const Trial adapted = within_limits(trial, entry, i);
      if (!runs_case(entry, cases[i], i, device) || !adapted.rejections_by(entry).empty()) continue;
      ++num_runs;
      std::string problem;
      try {
        problem = run_trial(adapted, entry, expected.get(adapted.spec));
      } catch (const std::exception& error) {
        problem = std::string("threw: ") + error.what();
      }
      if (!problem.empty() && ++num_failed[entry.name] <= 4)
        ADD_FAILURE() << entry.name << ", " << to_string(adapted.mode)
                      << (adapted.deterministic ? ", deterministic: " : ": ") << problem << "\n  "
                      << adapted.spec;
    }
  }
  testing::Test::RecordProperty("runs", num_runs);
  EXPECT_GT(num_runs, 0);
}

class OnDevice : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam() == kGpu && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
  }

  static std::vector<AttentionCase> mha_steps() { return valid_steps(conformance_cases(), GetParam()); }
  static std::vector<AttentionCase> mla_steps() { return mla_steps_for(GetParam()); }
};

using BackendConformance = OnDevice;
TEST_P(BackendConformance, HoldsForMhaCasesOfTheFirstQuarter) { run_part(mha_steps(), GetParam(), 0, 4); }
TEST_P(BackendConformance, HoldsForMhaCasesOfTheSecondQuarter) { run_part(mha_steps(), GetParam(), 1, 4); }
TEST_P(BackendConformance, HoldsForMhaCasesOfTheThirdQuarter) { run_part(mha_steps(), GetParam(), 2, 4); }
TEST_P(BackendConformance, HoldsForMhaCasesOfTheLastQuarter) { run_part(mha_steps(), GetParam(), 3, 4); }
TEST_P(BackendConformance, HoldsForMlaCases) { run_part(mla_steps(), GetParam(), 0, 1); }

const std::string_view kScaledRows = kernels::cache_dtype_name(DType::kU8);
constexpr std::string_view kPageNames[] = {"page_size 1",  "page_size 2",   "page_size 4",
                                           "page_size 8",  "page_size 16",  "page_size 32",
                                           "page_size 64", "page_size 128", "page_size 256"};

struct Feature {
  std::string_view name;
  bool required, declared;
};

// Features of a trial, and whether the backend declares them.
std::vector<Feature> features(const Trial& trial, const Capability& can) {
  const Requirement needs = trial.requirement();
  std::vector<Feature> all{
      {"KV scales", needs.kv_scales, can.kv_scales},
      {"sliding window", needs.window, can.window},
      {"chunked local attention", needs.chunk, can.chunk},
      {"logit cap", needs.logit_cap, can.logit_cap},
      {"attention sinks", needs.sinks, can.sinks},
      {"cross attention", needs.cross, can.cross},
      {"bidirectional attention", needs.bidirectional, can.bidirectional},
      {"deterministic inference", needs.deterministic, !can.deterministic.empty()},
      {"draft chain", needs.speculation == Speculation::kChain, can.speculation >= Speculation::kChain},
      {"draft tree", needs.speculation == Speculation::kTree, can.speculation >= Speculation::kTree}};
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kU8})
    all.push_back({kernels::cache_dtype_name(dtype), needs.kv_dtype == dtype, can.kv_dtypes.contains(dtype)});
  for (size_t i = 0; i < std::size(kPageSizes); ++i)
    all.push_back(
        {kPageNames[i], trial.spec.page_size == kPageSizes[i], can.page_sizes.contains(kPageSizes[i])});
  return all;
}

// How often features occurred in trials that ran, and in trials that were rejected because of them.
struct Coverage {
  std::map<std::string_view, int> ran, rejected;
  std::map<std::string_view, bool> declared;
  std::map<ForwardMode, int> modes;
};

void count_errors(const Trial& trial, const BackendEntry& entry, Coverage& coverage) {
  const std::vector<std::string> reasons = trial.rejections_by(entry);
  for (const Feature& feature : features(trial, entry.capability(trial.requirement().kind))) {
    coverage.declared[feature.name] = feature.declared;
    for (const std::string& reason : reasons)
      coverage.rejected[feature.name] += feature.required && reason.find(feature.name) != std::string::npos;
  }
}

Coverage measure_coverage(const BackendEntry& entry, const std::vector<AttentionCase>& cases, Device device) {
  Coverage coverage;
  for (size_t i = 0; i < cases.size(); ++i) {
    Trial trial = make_trial(cases[i], i, device);
    count_errors(trial, entry, coverage);
    trial.spec.page_size = kPageSizes[i % std::size(kPageSizes)];
    count_errors(trial, entry, coverage);

    const Trial adapted = within_limits(make_trial(cases[i], i, device), entry, i);
    if (!runs_case(entry, cases[i], i, device) || !adapted.rejections_by(entry).empty()) continue;
    ++coverage.modes[adapted.mode];
    for (const Feature& feature : features(adapted, entry.capability(adapted.requirement().kind)))
      coverage.ran[feature.name] += feature.required;
  }
  return coverage;
}

// `absent` lists features that no case of the kind has.
void expect_coverage(KvKind kind, const std::vector<AttentionCase>& cases, Device device,
                     std::initializer_list<std::string_view> absent) {
  for (const BackendEntry& entry : backend_table()) {
    const Capability& can = entry.capability(kind);
    Coverage coverage = measure_coverage(entry, cases, device);
    if (!runs_on(entry, kind, device)) {
      EXPECT_TRUE(coverage.modes.empty()) << entry.name;
      continue;
    }
    for (const auto& [name, declared] : coverage.declared) {
      if (std::ranges::find(absent, name) != absent.end()) continue;
      if (declared)
        EXPECT_GT(coverage.ran[name], 0) << entry.name << " is never tested on " << name;
      else
        EXPECT_GT(coverage.rejected[name], 0) << entry.name << " never rejects " << name;
    }
    EXPECT_GT(coverage.modes.count(ForwardMode::kDecode), 0u) << entry.name;
    if (!can.prefill.empty()) {
      EXPECT_GT(coverage.modes.count(ForwardMode::kExtend), 0u) << entry.name;
      EXPECT_GT(coverage.modes.count(ForwardMode::kMixed), 0u) << entry.name;
    }
    EXPECT_EQ(coverage.modes.count(ForwardMode::kTargetVerify) > 0, can.speculation != Speculation::kNone)
        << entry.name;
  }
}

// Coverage does not depend on the device being present.
using BackendCoverage = testing::TestWithParam<Device>;
TEST_P(BackendCoverage, EveryMhaCapabilityIsTestedOrRejected) {
  expect_coverage(KvKind::kMha, valid_steps(conformance_cases(), GetParam()), GetParam(), {kScaledRows});
}
TEST_P(BackendCoverage, EveryMlaCapabilityIsTestedOrRejected) {
  expect_coverage(KvKind::kMla, mla_steps_for(GetParam()), GetParam(),
                  {"chunked local attention", "cross attention", "bidirectional attention"});
}

TEST_P(BackendConformance, IsBatchInvariantWhenDeterministic) {
  const std::vector<AttentionCase> cases = valid_steps(batch_invariance_cases(), GetParam());
  for (const BackendEntry& entry : backend_table())
    for (size_t i = 0; i < cases.size(); ++i) {
      const Trial trial =
          within_limits({.spec = without_backend_choices(cases[i]),
                         .mode = mode_for(cases[i], i) == ForwardMode::kDecode ? ForwardMode::kDecode
                                                                               : ForwardMode::kExtend,
                         .deterministic = true,
                         .device = GetParam()},
                        entry, i);
      if (!trial.deterministic || !trial.rejections_by(entry).empty()) continue;
      const BackendCase step(trial.spec, trial.mode, trial.device);
      const auto backend = step.create(entry, true);
      step.run(*backend);
      for (int r = 0; r < static_cast<int>(trial.spec.requests.size()); ++r) {
        const int seqlen_q = trial.spec.requests[static_cast<size_t>(r)].seqlen_q;
        for (const auto& [begin, end] :
             {std::pair{0, seqlen_q}, {0, seqlen_q / 2}, {seqlen_q - 1, seqlen_q}}) {
          if (begin < 0 || begin >= end) continue;
          EXPECT_TRUE(step.part_agrees(*backend, r, begin, end))
              << entry.name << ": tokens " << begin << " to " << end - 1 << " of request " << r << "\n  "
              << trial.spec;
        }
      }
    }
}

std::string name_of(const testing::TestParamInfo<Device>& test) { return test.param == kCpu ? "cpu" : "gpu"; }
INSTANTIATE_TEST_SUITE_P(Every, BackendConformance, testing::Values(kCpu, kGpu), name_of);
INSTANTIATE_TEST_SUITE_P(Every, BackendCoverage, testing::Values(kCpu, kGpu), name_of);

}  // namespace
}  // namespace attend::conformance
