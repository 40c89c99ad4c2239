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

// What the user asked for. Empty: choose.
struct BackendOptions {
  // Both phases. Where it only decodes (FlashMLA), the other phase is chosen, and Resolution::why says so.
  std::string attention_backend = {};
  std::string prefill_backend = {};  // wins over attention_backend
  std::string decode_backend = {};   // likewise
  std::optional<int> page_size = {};
};

// Why a backend can not serve a phase: "page_size 16: flashmla needs 64 (decode)".
struct Rejection {
  std::string_view backend;
  Phase phase;
  std::vector<std::string> reasons;
};

struct Resolution {
  const BackendEntry* prefill = nullptr;
  const BackendEntry* decode = nullptr;
  int page_size = 0;
  std::string why = {};                  // one line for people: "cpu: first choice for cpu"
  std::vector<Rejection> rejected = {};  // of every backend that was not asked for and can not serve
};

// One entry of a preference list: a backend, and when it is preferred. (Whether it can serve is its
// capability.)
struct Preference {
  std::string_view backend;
  Speculation from = Speculation::kNone;   // draft trees at least this bushy
  Speculation up_to = Speculation::kTree;  // and at most
  bool only_unequal_head_dims = false;     // preferred only when head_dim_qk != head_dim_v
  bool only_deterministic = false;         // preferred only for deterministic inference
};
// preference[kind][architecture]: what to try, best first. Both phases share a list: phases differ in who can
// serve, which capabilities say. What no list names comes last, in the order of the table.
std::span<const Preference> preference(KvKind kind, Architecture architecture);
// Page size when neither the user nor a backend asks for another; where it is not taken, the next of 64, 32,
// 128, 256, 8, 4, 2, 1 that is.
inline constexpr int kDefaultPageSize = 16;

// Every reason why `entry` can not serve `phase`; empty when it can. `is_requested_by_name`: on the CPU any
// backend may be asked for, its contract then runs over the CPU kernels; automatic choice never does that.
std::vector<std::string> reasons_against(const BackendEntry& entry, Phase phase,
                                         const Requirement& requirement, const Hardware& hardware,
                                         std::optional<int> page_size, bool is_requested_by_name);

// Chooses. Nothing that the user asked for is changed: throws Error(kInvalidArgument) for an unknown name,
// with the list of names, and Error(kUnsupported) for a backend of SGLang that attend does not have, and with
// every reason when what was asked for, or nothing at all, can serve. The page sizes of both phases are
// intersected.
Resolution resolve(const Requirement& requirement, const Hardware& hardware, const BackendOptions& options,
                   std::span<const BackendEntry> table);

// The entry with this name or alias; null: none.
const BackendEntry* find_backend(std::span<const BackendEntry> table, std::string_view name);

// The hardware of this machine's CPU.
Hardware detect_cpu();
// The record of a GPU. Throws Error(kUnsupported) for one that attend has no kernels for.
Hardware make_hardware(const cuda::DeviceInfo& gpu, Device device);
// A device of this machine. Throws Error(kInvalidArgument) for a GPU that is not there and
// Error(kUnsupported) for one that is older than Ampere, which attend has no kernels for.
Hardware detect_hardware(Device device);

}  // namespace attend
#pragma GCC visibility pop
