#include "tests/attention/random_problem.h"

#include <rapidcheck.h>

#include <array>

namespace attend::test {
namespace {

constexpr std::array kArchitectures = {Architecture::kCpu, Architecture::kAmpere, Architecture::kHopper,
                                       Architecture::kBlackwell, Architecture::kAmd};

// Names that preference lists contain, and two others.
struct Name {
  std::string_view name;
  std::array<std::string_view, 1> alias;
};
constexpr std::array<Name, 7> kNames{{{"cpu", {"amx"}},
                                      {"triton", {"portable"}},
                                      {"flashinfer", {"fi"}},
                                      {"fa3", {"flash"}},
                                      {"trtllm_mha", {"trt"}},
                                      {"other", {"else"}},
                                      {"another", {"one"}}}};

bool mostly() { return !sometimes(); }

PageSizes any_page_sizes() {
  if (mostly()) return PageSizes::all();
  return PageSizes{1 << uniform_below(9), 1 << uniform_below(9)};
}

Set<Architecture> any_architectures() {
  if (mostly()) return Set<Architecture>::all();
  return Set<Architecture>{*rc::gen::elementOf(kArchitectures)};
}

Capability any_capability() {
  Capability can{.prefill = any_architectures(),
                 .decode = any_architectures(),
                 .page_sizes = any_page_sizes(),
                 .tree_page_sizes = any_page_sizes(),
                 .window_tree_page_sizes = any_page_sizes(),
                 .no_gqa_page_sizes = any_page_sizes(),
                 .dtypes = mostly() ? Set<DType>{DType::kBF16, DType::kF16} : Set<DType>{DType::kF16},
                 .kv_dtypes = mostly() ? Set<DType>{DType::kBF16, DType::kF8E4M3} : Set<DType>{DType::kBF16}};
  can.preferred_page_size = mostly() ? 0 : 64;
  if (sometimes()) can.head_dims = {128, 128};
  if (sometimes()) can.head_dim_rule = *rc::gen::element(HeadDimRule::kEqualUpTo, HeadDimRule::kExactly);
  if (sometimes()) can.num_q_heads = {16, 128};
  for (bool Capability::*feature :
       {&Capability::kv_scales, &Capability::window, &Capability::chunk, &Capability::logit_cap,
        &Capability::sinks, &Capability::cross, &Capability::cross_with_window, &Capability::bidirectional,
        &Capability::graphs})
    can.*feature = mostly();
  can.indexer = sometimes();
  can.speculation =
      *rc::gen::element(Speculation::kNone, Speculation::kChain, Speculation::kTree, Speculation::kTree);
  can.deterministic = sometimes() ? Set<Architecture>{} : any_architectures();
  if (uniform_below(4) == 0) can.prefill = {};
  if (sometimes()) can.decode = {};
  return can;
}

std::string any_name(const std::vector<BackendEntry>& table) {
  if (table.empty() || uniform_below(3) > 0) return "";
  const BackendEntry& entry = *rc::gen::elementOf(table);
  return std::string(entry.aliases.empty() || mostly() ? entry.name : entry.aliases[0]);
}

}  // namespace

// inRange by itself depends on the size of a case.
int uniform_below(int end) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, end)); }

bool sometimes() { return uniform_below(8) == 0; }

std::vector<BackendEntry> any_table() {
  std::vector<BackendEntry> table;
  for (const Name& name : kNames) {
    if (sometimes()) continue;
    BackendEntry entry{.name = name.name};
    if (mostly()) entry.aliases = name.alias;
    if (mostly()) entry.mha = any_capability();
    if (mostly()) entry.mla = any_capability();
    table.push_back(entry);
  }
  return table;
}

Requirement any_requirement() {
  Requirement needs{.kind = mostly() ? KvKind::kMha : KvKind::kMla,
                    .num_q_heads = 32,
                    .q_heads_per_kv = mostly() ? 4 : 1,
                    .head_dims = {128, 128},
                    .dtype = DType::kBF16,
                    .kv_dtype = mostly() ? DType::kBF16 : DType::kF8E4M3};
  if (sometimes())
    needs.head_dims = *rc::gen::element(HeadDims{192, 128}, HeadDims{100, 100}, HeadDims{256, 256});
  for (bool Requirement::*feature :
       {&Requirement::kv_scales, &Requirement::window, &Requirement::chunk, &Requirement::logit_cap,
        &Requirement::sinks, &Requirement::cross, &Requirement::bidirectional, &Requirement::indexer,
        &Requirement::deterministic, &Requirement::graphs})
    needs.*feature = sometimes();
  needs.speculation =
      *rc::gen::element(Speculation::kNone, Speculation::kNone, Speculation::kChain, Speculation::kTree);
  return needs;
}

Hardware any_hardware() { return {.architecture = *rc::gen::elementOf(kArchitectures), .name = "any"}; }

BackendOptions any_options(const std::vector<BackendEntry>& table) {
  BackendOptions options{.attention_backend = any_name(table),
                         .prefill_backend = any_name(table),
                         .decode_backend = any_name(table),
                         .page_size = {}};
  if (sometimes()) options.page_size = 1 << uniform_below(9);
  return options;
}

}  // namespace attend::test
