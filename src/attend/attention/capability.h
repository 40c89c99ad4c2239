// Capabilities, requirements and hardware as plain data. Checks, `attend backends` and the support matrix in
// docs/ all use these records; no code compares a backend's name.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/attention/forward_batch.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

enum class Architecture : uint8_t {
  kCpu,
  kTuring,            // SM 7.5
  kAmpere,            // SM 8.0, 8.6
  kAda,               // SM 8.9
  kHopper,            // SM 9.0
  kBlackwell,         // SM 10.0, 10.3
  kBlackwellGeforce,  // SM 12.x
  kAmd,
};
std::string_view to_string(Architecture architecture);

// A set of the values of an enum (or of small numbers).
template <class E>
class Set {
 public:
  constexpr Set() = default;
  constexpr Set(std::initializer_list<E> members) {
    for (E member : members) bits_ |= bit(member);
  }
  static constexpr Set all() {
    Set set;
    set.bits_ = ~uint32_t{0};
    return set;
  }
  constexpr bool contains(E member) const { return (bits_ & bit(member)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr Set intersect(Set other) const {
    Set set;
    set.bits_ = bits_ & other.bits_;
    return set;
  }
  constexpr bool operator==(const Set&) const = default;

 private:
  static constexpr uint32_t bit(E member) { return uint32_t{1} << static_cast<unsigned>(member); }
  uint32_t bits_ = 0;
};

// Returns text such as "hopper, blackwell"; "nothing" for an empty set.
std::string to_string(Set<Architecture> architectures);
std::string to_string(Set<DType> dtypes);

// Page sizes 1, 2, 4, ... 256.
class PageSizes {
 public:
  constexpr PageSizes() = default;
  constexpr PageSizes(std::initializer_list<int> sizes) {
    for (int size : sizes) bits_ |= static_cast<uint32_t>(size);
  }
  static constexpr PageSizes all() { return PageSizes{1, 2, 4, 8, 16, 32, 64, 128, 256}; }
  constexpr bool contains(int size) const {
    return size > 0 && std::has_single_bit(static_cast<uint32_t>(size)) &&
           (bits_ & static_cast<uint32_t>(size));
  }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr PageSizes intersect(PageSizes other) const {
    PageSizes sizes;
    sizes.bits_ = bits_ & other.bits_;
    return sizes;
  }
  // Returns text such as "1, 16, 64"; "any" for all sizes.
  std::string to_string() const;
  constexpr bool operator==(const PageSizes&) const = default;

 private:
  uint32_t bits_ = 0;  // bit of a size: the size itself
};

// Draft trees in speculative decoding: how many branches a draft token may have.
enum class Speculation : uint8_t { kNone, kChain, kTree };
std::string_view to_string(Speculation speculation);

std::string_view to_string(KvKind kind);

struct HeadDims {
  int qk = 0, v = 0;
  constexpr bool operator==(const HeadDims&) const = default;
};

// Head dims of Capability::wide_heads.
inline constexpr HeadDims kWideHeads{512, 512};

// Rule for supported head dims, given the largest.
enum class HeadDimRule : uint8_t {
  kUpTo,       // multiples of 8 up to the largest
  kEqualUpTo,  // same, and head_dim_qk == head_dim_v
  kExactly,    // the largest only
};

// Capabilities of a backend for one kind of KV. Without architectures it does not serve the kind.
struct Capability {
  Set<Architecture> prefill = {};  // architectures it prefills on; empty: decode only
  Set<Architecture> decode = {};

  PageSizes page_sizes = {};
  // Page sizes under a condition; they intersect if several conditions hold.
  PageSizes tree_page_sizes = PageSizes::all();         // with draft trees
  PageSizes window_tree_page_sizes = PageSizes::all();  // with draft trees and a sliding window
  PageSizes no_gqa_page_sizes = PageSizes::all();       // with equal numbers of KV and query heads
  int preferred_page_size = 0;  // used if the user requests none; 0: the resolver's default

  HeadDims head_dims = {256, 256};  // largest head dims
  HeadDimRule head_dim_rule = HeadDimRule::kUpTo;
  bool wide_heads = false;              // also 512/512 (Gemma 4)
  std::array<int, 2> num_q_heads = {};  // supported head counts per rank; zeros: any
  Set<DType> dtypes = {};               // of q, k, v
  Set<DType> kv_dtypes = {};            // of the pool; kU8: kernels/kv_store/selected_rows.h

  // Prefill of MLA: supports contiguous keys and values outside of the cache (AttentionInput::k, expanded
  // MLA). Without it, models use absorbed MLA in every step.
  bool contiguous = false;
  bool kv_scales = true;  // applies descales other than 1
  bool window = true;
  bool chunk = true;
  bool logit_cap = true;
  bool sinks = true;
  bool cross = true;              // cross attention
  bool cross_with_window = true;  // in one model
  bool bidirectional = true;      // queries see keys after their own: all, a window_right, or an image
  // Attends to the keys that an indexer selects, and serves only models with an indexer in every layer.
  bool indexer = false;
  Speculation speculation = Speculation::kTree;
  // Architectures on which a token's bits depend only on its own sequence.
  Set<Architecture> deterministic = Set<Architecture>::all();
  bool graphs = true;  // decode can be captured in a CUDA graph

  constexpr const Set<Architecture>& architectures(Phase phase) const {
    return phase == Phase::kPrefill ? prefill : decode;
  }
  constexpr bool supports_any_phase() const { return !prefill.empty() || !decode.empty(); }
  bool operator==(const Capability&) const = default;
};

// Text for display: "pages any; head dims to 256/256; KV float32, bfloat16; window, sinks; draft trees; ...".
std::string describe(const Capability& capability);

// Requirements of a model and the user's options.
struct Requirement {
  KvKind kind = KvKind::kMha;
  int num_q_heads = 0;      // per rank, the largest over layers
  int q_heads_per_kv = 1;   // the smallest over layers
  HeadDims head_dims = {};  // the largest over layers
  DType dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
  bool kv_scales = false;  // some scale is not 1
  bool window = false, chunk = false, logit_cap = false, sinks = false, cross = false, bidirectional = false;
  bool indexer = false;
  Speculation speculation = Speculation::kNone;
  bool deterministic = false;
  bool graphs = false;
};
// Returns the union over a model's layers; options (speculation, deterministic, graphs) start as false.
Requirement make_requirement(const ModelGeometry& model);

// Returns the page sizes of `capability` that serve `requirement`: page_sizes under every condition that
// holds.
PageSizes page_sizes_for(const Capability& capability, const Requirement& requirement);

// Hardware as a value, so that tests of the selection cover any machine.
struct Hardware {
  Architecture architecture = Architecture::kCpu;
  std::string name = {};  // for display: "AMD EPYC 9R45, 2 cores"
  int num_workers = 1;    // threads or SMs
};

}  // namespace attend
#pragma GCC visibility pop
