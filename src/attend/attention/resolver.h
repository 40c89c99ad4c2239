// The resolver: one pure function from requirement, hardware and options to backends and page size.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/attention/capability.h"
#include "attend/tensor/cuda.h"

#pragma GCC visibility push(default)
namespace attend {

// Backends and page size that the user requested. Empty: chosen by the resolver.
struct BackendOptions {
  // Backend of both phases. If it only decodes (FlashMLA), the resolver chooses the prefill backend and
  // reports this in Resolution::why.
  std::string attention_backend = {};
  std::string prefill_backend = {};  // overrides attention_backend
  std::string decode_backend = {};   // same
  std::optional<int> page_size = {};
};

// Reasons why a backend cannot serve a phase: "page_size 16: flashmla needs 64 (decode)".
struct Rejection {
  std::string_view backend;
  Phase phase;
  std::vector<std::string> reasons;
};

struct Resolution {
  const BackendEntry* prefill = nullptr;
  const BackendEntry* decode = nullptr;
  int page_size = 0;
  std::string why = {};                  // one line for display: "cpu: first choice for cpu"
  std::vector<Rejection> rejected = {};  // backends that were not requested and cannot serve
};

// Entry of a preference list: a backend, and the condition under which it is preferred. Its capability
// determines if it can serve.
struct Preference {
  std::string_view backend;
  Speculation from = Speculation::kNone;   // draft trees at least this general
  Speculation up_to = Speculation::kTree;  // and at most this general
  bool only_unequal_head_dims = false;     // preferred only when head_dim_qk != head_dim_v
  bool only_deterministic = false;         // preferred only for deterministic inference
};
// Returns the preferred backends of a KV kind and an architecture, best first. Both phases share a list,
// because capabilities already exclude backends that cannot serve a phase. Backends that no list names are
// tried last, in the order of the table.
std::span<const Preference> preference(KvKind kind, Architecture architecture);
// Page size without a request of the user and a preference of a backend. If it is not supported, the first
// supported size of 64, 32, 128, 256, 8, 4, 2, 1 is used.
inline constexpr int kDefaultPageSize = 16;

// Returns every reason why `entry` cannot serve `phase`; empty if it can. `is_requested_by_name`: on the CPU
// any backend may be requested by name and then runs on the CPU kernels; the automatic choice never does
// that.
std::vector<std::string> rejection_reasons(const BackendEntry& entry, Phase phase,
                                           const Requirement& requirement, const Hardware& hardware,
                                           std::optional<int> page_size, bool is_requested_by_name);

// Chooses the backends of both phases and the page size, and never changes a request of the user. Throws
// Error(kInvalidArgument) with the list of names for an unknown name, Error(kUnsupported) for a backend of
// SGLang that attend does not have, and Error(kUnsupported) with every reason if the requested backend, or
// every backend, cannot serve. The page sizes of both phases are intersected.
Resolution resolve(const Requirement& requirement, const Hardware& hardware, const BackendOptions& options,
                   std::span<const BackendEntry> table);

// Returns the entry with this name or alias, or null.
const BackendEntry* find_backend(std::span<const BackendEntry> table, std::string_view name);

// Returns the hardware of this machine's CPU.
Hardware detect_cpu();
// Returns the record of a GPU. Throws Error(kUnsupported) if attend has no kernels for it.
Hardware make_hardware(const cuda::DeviceInfo& gpu, Device device);
// Returns the record of a device of this machine. Throws Error(kInvalidArgument) for a GPU that does not
// exist and Error(kUnsupported) for a GPU older than Ampere, for which attend has no kernels.
Hardware detect_hardware(Device device);

}  // namespace attend
#pragma GCC visibility pop
