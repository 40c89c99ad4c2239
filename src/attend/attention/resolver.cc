#include "attend/attention/resolver.h"

#include <algorithm>

#include "attend/attention/unsupported_backends.h"
#include "attend/base/error.h"
#include "attend/kv/kv_pool.h"

namespace attend {
namespace {

// A backend that can serve a phase.
struct Candidate {
  const BackendEntry* entry;
  std::string why;
};

struct PhaseChoice {
  Phase phase;
  std::vector<Candidate> candidates;  // best first
  std::vector<Rejection> rejected;    // backends that were not requested
  std::vector<std::string> against;   // reasons against the requested backend
};

struct ResolveInput {
  const Requirement& requirement;
  const Hardware& hardware;
  const BackendOptions& options;
  std::span<const BackendEntry> table;
};

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string joined;
  for (const std::string& part : parts) {
    if (!joined.empty()) joined += separator;
    joined += part;
  }
  return joined;
}

const BackendEntry& named_backend(std::span<const BackendEntry> table, std::string_view name) {
  const BackendEntry* entry = find_backend(table, name);
  if (entry != nullptr) return *entry;
  if (const UnsupportedBackend* foreign = find_unsupported_backend(name))
    fail(ErrorCode::kUnsupported, "attention backend '", name, "' of SGLang: ", foreign->why);
  std::vector<std::string> names;
  for (const BackendEntry& known : table) names.emplace_back(known.name);
  fail(ErrorCode::kInvalidArgument, "attention backend '", name, "': expected one of ", join(names, ", "));
}

// Backend that the user named for a phase; null entry: none.
struct RequestedBackend {
  const BackendEntry* entry = nullptr;
  bool does_phase = true;  // false: named for both phases, and only supports the other one
};

RequestedBackend find_requested(Phase phase, const ResolveInput& input) {
  const BackendOptions& options = input.options;
  const bool prefill = phase == Phase::kPrefill;
  const std::string& own = prefill ? options.prefill_backend : options.decode_backend;
  const std::string& other = prefill ? options.decode_backend : options.prefill_backend;
  if (!own.empty()) return {.entry = &named_backend(input.table, own)};
  if (options.attention_backend.empty()) return {};
  const BackendEntry& both = named_backend(input.table, options.attention_backend);
  const Capability& can = both.capability(input.requirement.kind);
  // If the user overrides the other phase, choosing automatically here would ignore the option.
  const bool only_other = can.served() && can.architectures(phase).empty() && other.empty();
  return {.entry = &both, .does_phase = !only_other};
}

std::string requested_reason(const BackendEntry& entry, Phase phase, const ResolveInput& input) {
  const std::string why = std::string(entry.name) + ": asked for";
  const Set<Architecture>& native_hardware = entry.capability(input.requirement.kind).architectures(phase);
  return native_hardware.contains(input.hardware.architecture)
             ? why
             : why + "; its contract runs over the CPU kernels";
}

bool is_preferred(const Preference& preference, const Requirement& needs) {
  return needs.speculation >= preference.from && needs.speculation <= preference.up_to &&
         (!preference.only_unequal_head_dims || needs.head_dims.qk != needs.head_dims.v) &&
         (!preference.only_deterministic || needs.deterministic);
}

std::vector<Rejection> rejected(Phase phase, const ResolveInput& input, const BackendEntry* except) {
  std::vector<Rejection> found;
  for (const BackendEntry& entry : input.table) {
    if (&entry == except) continue;
    auto reasons =
        reasons_against(entry, phase, input.requirement, input.hardware, input.options.page_size, false);
    if (!reasons.empty()) found.push_back({entry.name, phase, std::move(reasons)});
  }
  return found;
}

// Returns every backend of the table that was not rejected, preferred ones first.
std::vector<Candidate> automatic_candidates(const ResolveInput& input,
                                            const std::vector<Rejection>& refused) {
  const std::string on(to_string(input.hardware.architecture));
  std::vector<const BackendEntry*> able;
  for (const BackendEntry& entry : input.table)
    if (std::ranges::find(refused, entry.name, &Rejection::backend) == refused.end()) able.push_back(&entry);

  std::vector<Candidate> candidates;
  std::string why = ": first choice for " + on;
  for (const Preference& preferred : preference(input.requirement.kind, input.hardware.architecture)) {
    if (!is_preferred(preferred, input.requirement)) continue;
    const auto found = std::ranges::find(able, preferred.backend, &BackendEntry::name);
    if (found != able.end()) {
      candidates.push_back({*found, std::string((*found)->name) + why});
      able.erase(found);
    }
    why = ": first choice for " + on + " that can serve this";
  }
  for (const BackendEntry* entry : able)
    candidates.push_back(
        {entry, std::string(entry->name) + ": none of the usual choices for " + on + " will do"});
  return candidates;
}

PhaseChoice choose_for(Phase phase, const ResolveInput& input) {
  const RequestedBackend requested = find_requested(phase, input);
  PhaseChoice choice{.phase = phase,
                     .candidates = {},
                     .rejected = rejected(phase, input, requested.does_phase ? requested.entry : nullptr),
                     .against = {}};
  if (requested.entry != nullptr && requested.does_phase) {
    choice.against = reasons_against(*requested.entry, phase, input.requirement, input.hardware,
                                     input.options.page_size, true);
    if (choice.against.empty())
      choice.candidates.push_back({requested.entry, requested_reason(*requested.entry, phase, input)});
    return choice;
  }
  choice.candidates = automatic_candidates(input, choice.rejected);
  if (requested.entry != nullptr)
    for (Candidate& candidate : choice.candidates)
      candidate.why += "; " + std::string(requested.entry->name) + " has no " + std::string(to_string(phase));
  return choice;
}

int choose_page_size(PageSizes sizes, const Capability& prefill, const Capability& decode) {
  for (int size : {decode.preferred_page_size, prefill.preferred_page_size, kDefaultPageSize, 64, 32, 128,
                   256, 8, 4, 2, 1})
    if (sizes.contains(size)) return size;
  ensure(false, "a page size from none");
  return 0;
}

// Returns the first pair of backends that share a page size; nullopt if no pair does.
std::optional<Resolution> choose_pair(const ResolveInput& input, const PhaseChoice& prefill,
                                      const PhaseChoice& decode) {
  const KvKind kind = input.requirement.kind;
  for (const Candidate& first : prefill.candidates)
    for (const Candidate& second : decode.candidates) {
      const Capability& one = first.entry->capability(kind);
      const Capability& two = second.entry->capability(kind);
      const PageSizes both =
          page_sizes_for(one, input.requirement).intersect(page_sizes_for(two, input.requirement));
      if (both.empty()) continue;
      const bool same = first.entry == second.entry && first.why == second.why;
      return Resolution{.prefill = first.entry,
                        .decode = second.entry,
                        .page_size = input.options.page_size.value_or(choose_page_size(both, one, two)),
                        .why = same ? first.why : first.why + " (prefill); " + second.why + " (decode)",
                        .rejected = {}};
    }
  return std::nullopt;
}

[[noreturn]] void refuse_page_sizes(const ResolveInput& input, const PhaseChoice& prefill,
                                    const PhaseChoice& decode) {
  std::vector<std::string> needs;
  for (const PhaseChoice* choice : {&prefill, &decode})
    for (const Candidate& candidate : choice->candidates)
      needs.push_back(
          std::string(candidate.entry->name) + " needs " +
          page_sizes_for(candidate.entry->capability(input.requirement.kind), input.requirement).to_string() +
          " (" + std::string(to_string(choice->phase)) + ")");
  fail(ErrorCode::kUnsupported, "no page size serves both phases: ", join(needs, ", "));
}

}  // namespace

const BackendEntry* find_backend(std::span<const BackendEntry> table, std::string_view name) {
  for (const BackendEntry& entry : table)
    if (entry.name == name || std::ranges::find(entry.aliases, name) != entry.aliases.end()) return &entry;
  return nullptr;
}

Resolution resolve(const Requirement& requirement, const Hardware& hardware, const BackendOptions& options,
                   std::span<const BackendEntry> table) {
  if (options.page_size) check_page_size(*options.page_size);
  const ResolveInput input{requirement, hardware, options, table};
  PhaseChoice prefill = choose_for(Phase::kPrefill, input);
  PhaseChoice decode = choose_for(Phase::kDecode, input);

  std::vector<std::string> against = prefill.against;
  against.insert(against.end(), decode.against.begin(), decode.against.end());
  if (!against.empty()) fail(ErrorCode::kUnsupported, join(against, "; "));

  std::vector<Rejection> refused = std::move(prefill.rejected);
  std::ranges::move(decode.rejected, std::back_inserter(refused));
  if (prefill.candidates.empty() || decode.candidates.empty()) {
    std::string all;
    for (const Rejection& rejection : refused) all += "\n  " + join(rejection.reasons, "; ");
    fail(ErrorCode::kUnsupported, "no attention backend serves this model on ",
         to_string(hardware.architecture), ":", all);
  }
  std::optional<Resolution> resolution = choose_pair(input, prefill, decode);
  if (!resolution) refuse_page_sizes(input, prefill, decode);
  resolution->rejected = std::move(refused);
  return *std::move(resolution);
}

}  // namespace attend
