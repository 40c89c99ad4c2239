// Every row of the table on the CPU and on a GPU, through plan() and forward() with real pools: a backend
// that declares a capability is tested on it, one that lacks it refuses.
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

// The row of the table that serves a device where nobody asks for another.
std::string_view default_of(Device device) { return device == kCpu ? "cpu" : "triton"; }

// What a row is asked to serve. On a CPU every contract runs; a GPU stands for the one on which a contract
// offers most, since all contracts run over the same kernels.
Hardware hardware_for(const BackendEntry& entry, KvKind kind, Device device) {
  if (device == kCpu) return {.architecture = Architecture::kCpu, .name = "a CPU"};
  const Capability& can = entry.capability(kind);
  const auto offers = [&](Architecture architecture) {
    return can.prefill.contains(architecture) + can.decode.contains(architecture) +
           can.deterministic.contains(architecture);
  };
  const auto architectures = {Architecture::kHopper, Architecture::kBlackwell,
                              Architecture::kBlackwellGeforce};
  return {.architecture = std::ranges::max(architectures, {}, offers), .name = "a GPU"};
}

constexpr int kPageSizes[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};

// A case as a step of one mode, for one backend.
struct Trial {
  AttentionCase spec;
  ForwardMode mode;
  bool deterministic;
  Device device;

  Requirement requirement() const { return requirement_of_case(spec, mode, deterministic); }
  std::vector<std::string> refused_by(const BackendEntry& entry) const {
    const Requirement needs = requirement();
    return reasons_against(entry, to_phase(mode), needs, hardware_for(entry, needs.kind, device),
                           spec.page_size,
                           /*is_requested_by_name=*/true);
  }
};

// Rows of CPUs alone do not serve GPUs.
bool served_on(const BackendEntry& entry, KvKind kind, Device device) {
  const Capability& can = entry.capability(kind);
  if (device == kCpu || !can.served()) return can.served();
  const Architecture architecture = hardware_for(entry, kind, device).architecture;
  return can.prefill.contains(architecture) || can.decode.contains(architecture);
}

// The mode in which a case is run; those that are no one's in particular come as every mode in turn.
ForwardMode mode_of(const AttentionCase& c, size_t case_idx) {
  if (c.tree != TreeShape::kNone) return ForwardMode::kTargetVerify;
  if (c.requests.empty()) return ForwardMode::kIdle;
  if (c.max_seqlen_q() - c.max_seqlen_q_slack <= 1) return ForwardMode::kDecode;
  constexpr ForwardMode kModes[] = {ForwardMode::kExtend, ForwardMode::kMixed, ForwardMode::kDraftExtend,
                                    ForwardMode::kTargetVerify};
  return kModes[case_idx % std::size(kModes)];
}

Trial trial_of(const AttentionCase& c, size_t case_idx, Device device) {
  return {.spec = without_backend_choices(c),
          .mode = mode_of(c, case_idx),
          .deterministic = c.split_rule == kernels::SplitRule::kFixed,
          .device = device};
}

// Every request brings at most one new token.
void decode_only(AttentionCase& c) {
  c.tree = TreeShape::kNone;
  for (Lengths& lengths : c.requests) lengths.seqlen_q = std::min(lengths.seqlen_q, 1);
}

// The trial without what a backend lacks, so that each is tested on everything else in the case. What it
// lacks beyond that (cross attention, a dtype) it refuses.
Trial within_limits(Trial trial, const BackendEntry& entry, size_t case_idx) {
  const Capability& can = entry.capability(trial.requirement().kind);
  if (!can.served()) return trial;
  AttentionCase& c = trial.spec;
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
  if (can.speculation == Speculation::kNone) decode_only(c);
  if (can.prefill.empty() || can.speculation == Speculation::kNone)
    trial.mode = mode_of(c, 3);  // what is not a decode becomes a verification
  trial.deterministic = trial.deterministic && !can.deterministic.empty();

  const PageSizes sizes = page_sizes_for(can, trial.requirement());
  const size_t every = c.is_mla() ? 4 : 2;  // MLA has fewer cases to meet all page sizes
  if (sizes.contains(c.page_size) && case_idx % every == 0) return trial;
  std::vector<int> taken;
  for (int size : kPageSizes)
    if (sizes.contains(size)) taken.push_back(size);
  c.page_size = taken.at(case_idx % taken.size());
  return trial;
}

// Expected results of one case and its variations, each computed once.
class ExpectedResults {
 public:
  const Expected& of(AttentionCase c) {
    if (!c.shared_prefix) c.page_size = 1;  // where K and V lie does not matter
    c.page_order = PageOrder::kSequential;
    const auto [found, is_new] = results_.try_emplace(to_literal(c));
    if (is_new) found->second = expected_result(c);
    return found->second;
  }

 private:
  std::map<std::string, Expected> results_;
};

// What is wrong, or nothing.
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

// On a GPU cases come in the dtypes of its tensor cores too.
std::vector<AttentionCase> steps_among(const std::vector<AttentionCase>& cases, Device device) {
  std::vector<AttentionCase> steps;
  const auto add = [&](const std::vector<AttentionCase>& more) {
    std::ranges::copy_if(more, std::back_inserter(steps), is_a_step);
  };
  add(cases);
  if (device == kGpu) add(on_tensor_cores(cases));
  return steps;
}

std::vector<AttentionCase> mla_steps_on(Device device) {
  std::vector<AttentionCase> steps = steps_among(mla_conformance_cases(), device);
  for (AttentionCase c : steps_among(scaled_row_cases(), device)) {
    c.kv_dtype = DType::kU8;
    steps.push_back(c);
  }
  return steps;
}

// Whether a row runs a case. Rows share their code: the default of the device runs every case, the others
// a third of them, each another third than its neighbors. MLA has few cases, so that all run all.
bool takes_part(const BackendEntry& entry, const AttentionCase& c, size_t case_idx, Device device) {
  const auto row = static_cast<size_t>(&entry - backend_table().data());
  return c.is_mla() || entry.name == default_of(device) ||
         Random(case_idx).below(3) == static_cast<int>(row % 3);
}

// Runs every part-th case, from the `part`-th of `num_parts`, with every backend that does not refuse it.
void run_part(const std::vector<AttentionCase>& cases, Device device, size_t part, size_t num_parts) {
  std::map<std::string_view, int> num_failed;
  int num_runs = 0;
  for (size_t i = part; i < cases.size(); i += num_parts) {
    const Trial trial = trial_of(cases[i], i, device);
    ExpectedResults expected;
    for (const BackendEntry& entry : backend_table()) {
      const Trial mine = within_limits(trial, entry, i);
      if (!takes_part(entry, cases[i], i, device) || !mine.refused_by(entry).empty()) continue;
      ++num_runs;
      std::string problem;
      try {
        problem = run_trial(mine, entry, expected.of(mine.spec));
      } catch (const std::exception& error) {
        problem = std::string("threw: ") + error.what();
      }
      if (!problem.empty() && ++num_failed[entry.name] <= 4)
        ADD_FAILURE() << entry.name << ", " << to_string(mine.mode)
                      << (mine.deterministic ? ", deterministic: " : ": ") << problem << "\n  " << mine.spec;
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

  static std::vector<AttentionCase> mha_steps() { return steps_among(conformance_cases(), GetParam()); }
  static std::vector<AttentionCase> mla_steps() { return mla_steps_on(GetParam()); }
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
  bool wanted, declared;
};

// The features of a trial, and whether a backend declares them.
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

// How often features came up in trials that ran, and in trials that were refused for them.
struct Coverage {
  std::map<std::string_view, int> ran, refused;
  std::map<std::string_view, bool> declared;
  std::map<ForwardMode, int> modes;
};

void count_errors(const Trial& trial, const BackendEntry& entry, Coverage& coverage) {
  const std::vector<std::string> reasons = trial.refused_by(entry);
  for (const Feature& feature : features(trial, entry.capability(trial.requirement().kind))) {
    coverage.declared[feature.name] = feature.declared;
    for (const std::string& reason : reasons)
      coverage.refused[feature.name] += feature.wanted && reason.find(feature.name) != std::string::npos;
  }
}

Coverage coverage_of(const BackendEntry& entry, const std::vector<AttentionCase>& cases, Device device) {
  Coverage coverage;
  for (size_t i = 0; i < cases.size(); ++i) {
    Trial trial = trial_of(cases[i], i, device);
    count_errors(trial, entry, coverage);
    trial.spec.page_size = kPageSizes[i % std::size(kPageSizes)];
    count_errors(trial, entry, coverage);

    const Trial mine = within_limits(trial_of(cases[i], i, device), entry, i);
    if (!takes_part(entry, cases[i], i, device) || !mine.refused_by(entry).empty()) continue;
    ++coverage.modes[mine.mode];
    for (const Feature& feature : features(mine, entry.capability(mine.requirement().kind)))
      coverage.ran[feature.name] += feature.wanted;
  }
  return coverage;
}

// `absent`: features that no case of the kind has.
void expect_coverage(KvKind kind, const std::vector<AttentionCase>& cases, Device device,
                     std::initializer_list<std::string_view> absent) {
  for (const BackendEntry& entry : backend_table()) {
    const Capability& can = entry.capability(kind);
    Coverage coverage = coverage_of(entry, cases, device);
    if (!served_on(entry, kind, device)) {
      EXPECT_TRUE(coverage.modes.empty()) << entry.name;
      continue;
    }
    for (const auto& [name, declared] : coverage.declared) {
      if (std::ranges::find(absent, name) != absent.end()) continue;
      if (declared)
        EXPECT_GT(coverage.ran[name], 0) << entry.name << " is never tested on " << name;
      else
        EXPECT_GT(coverage.refused[name], 0) << entry.name << " never refuses " << name;
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

// Which cases run is known without the device.
using BackendCoverage = testing::TestWithParam<Device>;
TEST_P(BackendCoverage, EveryMhaCapabilityIsTestedOrRejected) {
  expect_coverage(KvKind::kMha, steps_among(conformance_cases(), GetParam()), GetParam(), {kScaledRows});
}
TEST_P(BackendCoverage, EveryMlaCapabilityIsTestedOrRejected) {
  expect_coverage(KvKind::kMla, mla_steps_on(GetParam()), GetParam(),
                  {"chunked local attention", "cross attention", "bidirectional attention"});
}

TEST_P(BackendConformance, IsBatchInvariantWhenDeterministic) {
  const std::vector<AttentionCase> cases = steps_among(batch_invariance_cases(), GetParam());
  for (const BackendEntry& entry : backend_table())
    for (size_t i = 0; i < cases.size(); ++i) {
      const Trial trial = within_limits(
          {.spec = without_backend_choices(cases[i]),
           .mode = mode_of(cases[i], i) == ForwardMode::kDecode ? ForwardMode::kDecode : ForwardMode::kExtend,
           .deterministic = true,
           .device = GetParam()},
          entry, i);
      if (!trial.deterministic || !trial.refused_by(entry).empty()) continue;
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
