#include "attend/attention/resolver.h"

#include <algorithm>

#include "attend/attention/unsupported_backends.h"
#include "attend/base/error.h"
#include "attend/kv/kv_pool.h"

namespace attend {
namespace {

// A backend that supports a phase.
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
  if (const UnsupportedBackend* unsupported = find_unsupported_backend(name))
    fail(ErrorCode::kUnsupported, "attention backend '", name, "' of SGLang: ", unsupported->why);
  std::vector<std::string> names;
  for (const BackendEntry& known : table) names.emplace_back(known.name);
  fail(ErrorCode::kInvalidArgument, "attention backend '", name, "': expected one of ", join(names, ", "));
}

// Backend that the user named for a phase; null entry: none.
struct RequestedBackend {
  const BackendEntry* entry = nullptr;
  bool supports_phase = true;  // false: named for both phases, and only supports the other one
};

RequestedBackend find_requested(Phase phase, const ResolveInput& input) {
  const BackendOptions& options = input.options;
  const bool prefill = phase == Phase::kPrefill;
  const std::string& requested = prefill ? options.prefill_backend : options.decode_backend;
  const std::string& other = prefill ? options.decode_backend : options.prefill_backend;
  if (!requested.empty()) return {.entry = &named_backend(input.table, requested)};
  if (options.attention_backend.empty()) return {};
  const BackendEntry& both = named_backend(input.table, options.attention_backend);
  const Capability& can = both.capability(input.requirement.kind);
  // If the user overrides the other phase, choosing automatically here would ignore the option.
  const bool only_other = can.supports_any_phase() && can.architectures(phase).empty() && other.empty();
  return {.entry = &both, .supports_phase = !only_other};
}

std::string requested_reason(const BackendEntry& entry, Phase phase, const ResolveInput& input) {
  const std::string why = std::string(entry.name) + ": requested";
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
        rejection_reasons(entry, phase, input.requirement, input.hardware, input.options.page_size, false);
    if (!reasons.empty()) found.push_back({entry.name, phase, std::move(reasons)});
  }
  return found;
}

// Returns every backend of the table that was not rejected, preferred ones first.
std::vector<Candidate> automatic_candidates(const ResolveInput& input,
                                            const std::vector<Rejection>& rejections) {
  const std::string architecture(to_string(input.hardware.architecture));
  std::vector<const BackendEntry*> supported;
  for (const BackendEntry& entry : input.table)
    if (std::ranges::find(rejections, entry.name, &Rejection::backend) == rejections.end())
      supported.push_back(&entry);

  std::vector<Candidate> candidates;
  std::string why = ": first choice for " + architecture;
  for (const Preference& preferred : preference(input.requirement.kind, input.hardware.architecture)) {
    if (!is_preferred(preferred, input.requirement)) continue;
    const auto found = std::ranges::find(supported, preferred.backend, &BackendEntry::name);
    if (found != supported.end()) {
      candidates.push_back({*found, std::string((*found)->name) + why});
      supported.erase(found);
    }
    why = ": first choice for " + architecture + " that supports this model";
  }
  for (const BackendEntry* entry : supported)
    candidates.push_back({entry, std::string(entry->name) + ": no preferred backend for " + architecture +
                                     " supports this model"});
  return candidates;
}

PhaseChoice choose_for(Phase phase, const ResolveInput& input) {
  const RequestedBackend requested = find_requested(phase, input);
  PhaseChoice choice{.phase = phase,
                     .candidates = {},
                     .rejected = rejected(phase, input, requested.supports_phase ? requested.entry : nullptr),
                     .against = {}};
  if (requested.entry != nullptr && requested.supports_phase) {
    choice.against = rejection_reasons(*requested.entry, phase, input.requirement, input.hardware,
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
  ensure(false, "no page size to choose from");
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

// Requirement that a reason is about: "head dims 20/20: fa3 takes ..." is about "head dims 20/20".
std::string requirement_of(const std::string& reason) { return reason.substr(0, reason.find(": ")); }

// Returns the requirements that all of these rejections are about.
std::vector<std::string> common_causes(std::span<const Rejection> rejections) {
  std::vector<std::string> causes;
  if (rejections.empty()) return causes;
  for (const std::string& reason : rejections.front().reasons) causes.push_back(requirement_of(reason));
  for (const Rejection& rejection : rejections)
    std::erase_if(causes, [&](const std::string& cause) {
      return std::ranges::none_of(rejection.reasons,
                                  [&](const std::string& reason) { return requirement_of(reason) == cause; });
    });
  return causes;
}

// Names the cause first: the requirement that no backend of this hardware supports. Backends of other
// hardware are listed last.
[[noreturn]] void reject_model(const ResolveInput& input, std::vector<Rejection> rejections) {
  const Architecture architecture = input.hardware.architecture;
  const auto runs_here = [&](const Rejection& rejection) {
    const Capability& can = find_backend(input.table, rejection.backend)->capability(input.requirement.kind);
    return can.supports_any_phase() && can.architectures(rejection.phase).contains(architecture);
  };
  const auto others = std::ranges::stable_partition(rejections, runs_here).begin();
  std::string message = join(common_causes({rejections.begin(), others}), ", ");
  if (!message.empty()) message += ": ";
  message += "no attention backend supports this model on " + std::string(to_string(architecture)) + ":";
  for (const Rejection& rejection : rejections) message += "\n  " + join(rejection.reasons, "; ");
  fail(ErrorCode::kUnsupported, message);
}

[[noreturn]] void reject_page_sizes(const ResolveInput& input, const PhaseChoice& prefill,
                                    const PhaseChoice& decode) {
  std::vector<std::string> needs;
  for (const PhaseChoice* choice : {&prefill, &decode})
    for (const Candidate& candidate : choice->candidates)
      needs.push_back(
          std::string(candidate.entry->name) + " needs " +
          page_sizes_for(candidate.entry->capability(input.requirement.kind), input.requirement).to_string() +
          " (" + std::string(to_string(choice->phase)) + ")");
  fail(ErrorCode::kUnsupported, "no page size is supported in both phases: ", join(needs, ", "));
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

  std::vector<Rejection> rejections = std::move(prefill.rejected);
  std::ranges::move(decode.rejected, std::back_inserter(rejections));
  if (prefill.candidates.empty() || decode.candidates.empty()) reject_model(input, std::move(rejections));
  std::optional<Resolution> resolution = choose_pair(input, prefill, decode);
  if (!resolution) reject_page_sizes(input, prefill, decode);
  resolution->rejected = std::move(rejections);
  return *std::move(resolution);
}

}  // namespace attend
