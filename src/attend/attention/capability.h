// Capabilities, requirements and hardware as plain data. Checks, `attend backends` and the support matrix in
// docs/ all come from these records; no code asks for a backend's name.
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

// "hopper, blackwell"; "nothing" for none.
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
  // "1, 16, 64"; "any" for all of them.
  std::string to_string() const;
  constexpr bool operator==(const PageSizes&) const = default;

 private:
  uint32_t bits_ = 0;  // a size is its own bit
};

// Draft trees in speculative decoding: how many branches a draft token may have.
enum class Speculation : uint8_t { kNone, kChain, kTree };
std::string_view to_string(Speculation speculation);

// What a backend can do.
struct Capability {
  Set<Architecture> prefill = {};  // architectures it prefills on; empty: decode only
  Set<Architecture> decode = {};
  Set<KvKind> kinds = {};
  Set<Architecture> mla_architectures = Set<Architecture>::all();  // where it serves MLA, if it does
  PageSizes page_sizes = {};
  PageSizes tree_page_sizes = PageSizes::all();  // page sizes with draft trees
  int max_head_dim = 256;                        // MHA
  std::array<int, 2> mla_num_q_heads = {};       // MLA: head counts per rank it has kernels for; zeros: any
  bool unequal_head_dims = true;                 // head_dim_qk != head_dim_v
  Set<DType> dtypes = {};                        // of q, k, v
  Set<DType> kv_dtypes = {};                     // of the pool
  bool kv_scales = true;                         // applies descales other than 1
  bool window = true;
  bool chunk = true;
  bool logit_cap = true;
  bool sinks = true;
  bool cross = true;  // cross attention
  bool bidirectional = true;
  Speculation speculation = Speculation::kTree;
  Set<KvKind> deterministic = Set<KvKind>::all();  // kinds with batch-invariant results
  bool graphs = true;                              // its decode can be captured in a CUDA graph
};

// One line for people: "MHA, page sizes any, head dims to 256, kv float32 bfloat16 ..., window, chunk, ...".
std::string describe(const Capability& capability);

// What a model and the user's wishes need of a backend.
struct Requirement {
  KvKind kind = KvKind::kMha;
  int num_q_heads = 0;                  // per rank, the largest over layers
  int head_dim_qk = 0, head_dim_v = 0;  // likewise
  DType dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
  bool kv_scales = false;  // some scale is not 1
  bool window = false, chunk = false, logit_cap = false, sinks = false, cross = false, bidirectional = false;
  Speculation speculation = Speculation::kNone;
  bool deterministic = false;
  bool graphs = false;
};
// The union over a model's layers; wishes (speculation, deterministic, graphs) start as false.
Requirement requirement_of(const ModelGeometry& model);

// The machine, as a value: selection is tested on any machine.
struct Hardware {
  Architecture architecture = Architecture::kCpu;
  std::string name;     // for people: "AMD EPYC 9R45, 2 cores"
  int num_workers = 1;  // threads or SMs
};

}  // namespace attend
