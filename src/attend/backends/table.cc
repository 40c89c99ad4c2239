// The table of backends. A row that carries a name of SGLang's implements that backend's contract (index,
// page rule, geometry and dtypes it takes) with attend's kernels.
//
// Limits of geometry, page size, dtype and architecture are the contract's. Features are attend's kernels',
// which have them all, but for those that SGLang's choice of a default turns on (FlashInfer without sinks and
// chunks) and those that a backend does not offer to its callers at all.
#include "attend/backends/table.h"

#include "attend/backends/kernel_backend.h"
#include "attend/backends/spec.h"

namespace attend {
namespace {

using kernels::KvIndexKind;
using kernels::SplitRule;
using enum Architecture;
using enum KvKind;

constexpr Set<Architecture> kNvidia{kTuring, kAmpere, kAda, kHopper, kBlackwell, kBlackwellGeforce};
constexpr Set<DType> kAllFloats{DType::kF32, DType::kF16, DType::kBF16};
constexpr Set<DType> kAllKv{DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};
constexpr Set<DType> kKvWithoutE5M2{DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};

constexpr BackendSpec kReferenceSpec{.index = KvIndexKind::kRequestRows, .kernel = KernelChoice::kReference};
constexpr BackendSpec kCpuSpec{.index = KvIndexKind::kRequestRows};
constexpr BackendSpec kTritonSpec{.index = KvIndexKind::kRequestRows};
constexpr BackendSpec kCsrSpec{.index = KvIndexKind::kCsr};
constexpr BackendSpec kPageTableSpec{.index = KvIndexKind::kPageTable};

constexpr std::string_view kTorchNativeAliases[] = {"reference"};
constexpr std::string_view kCpuAliases[] = {"intel_amx"};

constexpr BackendEntry kTable[] = {
    {.name = "torch_native",
     .aliases = kTorchNativeAliases,
     .summary = "the float64 reference, one element after another: the specification, and slow",
     .capability = {.prefill = {kCpu},
                    .decode = {kCpu},
                    .kinds = {kMha, kMla},
                    .page_sizes = PageSizes::all(),
                    .dtypes = kAllFloats,
                    .kv_dtypes = kAllKv,
                    .graphs = false},
     .workspace = kernel_backend_workspace,
     .create = create_kernel_backend,
     .spec = &kReferenceSpec},
    {.name = "cpu",
     .aliases = kCpuAliases,
     .summary = "vectorised and threaded; portable, AVX2, AVX-512 or AVX-512-BF16 by what the CPU has",
     .capability = {.prefill = {kCpu},
                    .decode = {kCpu},
                    .kinds = {kMha, kMla},
                    .page_sizes = PageSizes::all(),
                    .dtypes = kAllFloats,
                    .kv_dtypes = kAllKv,
                    .graphs = false},
     .workspace = kernel_backend_workspace,
     .create = create_kernel_backend,
     .spec = &kCpuSpec},
    {.name = "triton",
     .summary = "portable: token-granular index, splits, tree masks",
     .capability = {.prefill = {kTuring, kAmpere, kAda, kHopper, kBlackwell, kBlackwellGeforce, kAmd},
                    .decode = {kTuring, kAmpere, kAda, kHopper, kBlackwell, kBlackwellGeforce, kAmd},
                    .kinds = {kMha, kMla},
                    .page_sizes = PageSizes::all(),
                    .dtypes = kAllFloats,
                    .kv_dtypes = kAllKv,
                    .cross = false},
     .workspace = kernel_backend_workspace,
     .create = create_kernel_backend,
     .spec = &kTritonSpec},
    {.name = "flashinfer",
     .summary = "CSR of page ids",
     .capability = {.prefill = kNvidia,
                    .decode = kNvidia,
                    .kinds = {kMha, kMla},
                    .mla_architectures = {kAmpere, kAda, kHopper, kBlackwell, kBlackwellGeforce},
                    .page_sizes = PageSizes::all(),
                    .dtypes = kAllFloats,
                    .kv_dtypes = kAllKv,
                    .chunk = false,
                    .sinks = false,
                    .deterministic = {kMha}},
     .workspace = kernel_backend_workspace,
     .create = create_kernel_backend,
     .spec = &kCsrSpec},
    {.name = "fa3",
     .summary = "FlashAttention-3's contract: page table, any page size",
     .capability = {.prefill = {kAmpere, kAda, kHopper},
                    .decode = {kAmpere, kAda, kHopper},
                    .kinds = {kMha, kMla},
                    .mla_architectures = {kHopper},
                    .page_sizes = PageSizes::all(),
                    .dtypes = kAllFloats,
                    .kv_dtypes = kKvWithoutE5M2},
     .workspace = kernel_backend_workspace,
     .create = create_kernel_backend,
     .spec = &kPageTableSpec},
    {.name = "fa4",
     .summary = "FlashAttention-4's contract: page table, pages of 1 or 128",
     .capability = {.prefill = {kHopper, kBlackwell, kBlackwellGeforce},
                    .decode = {kHopper, kBlackwell, kBlackwellGeforce},
                    .kinds = {kMha, kMla},
                    .page_sizes = {1, 128},
                    .dtypes = kAllFloats,
                    .kv_dtypes = kAllFloats,
                    .deterministic = {kMha}},
     .workspace = kernel_backend_workspace,
     .create = create_kernel_backend,
     .spec = &kPageTableSpec},
    {.name = "trtllm_mha",
     .summary = "TensorRT-LLM's MHA contract: page table, pages of 16 to 128",
     .capability = {.prefill = {kBlackwell},
                    .decode = {kHopper, kBlackwell, kBlackwellGeforce},
                    .kinds = {kMha},
                    .page_sizes = {16, 32, 64, 128},
                    .unequal_head_dims = false,
                    .dtypes = kAllFloats,
                    .kv_dtypes = kKvWithoutE5M2,
                    .cross = false,
                    .speculation = Speculation::kChain,
                    .deterministic = {}},
     .workspace = kernel_backend_workspace,
     .create = create_kernel_backend,
     .spec = &kPageTableSpec},
    {.name = "flashmla",
     .summary = "FlashMLA's contract: page table, pages of 64, decode",
     .capability = {.prefill = {},
                    .decode = {kHopper},
                    .kinds = {kMla},
                    .page_sizes = {64},
                    .dtypes = kAllFloats,
                    .kv_dtypes = kKvWithoutE5M2,
                    .window = false,
                    .chunk = false,
                    .sinks = false,
                    .cross = false,
                    .speculation = Speculation::kChain,
                    .deterministic = {}},
     .workspace = kernel_backend_workspace,
     .create = create_kernel_backend,
     .spec = &kPageTableSpec},
    {.name = "cutlass_mla",
     .summary = "CUTLASS MLA's contract: page table, pages of 128, decode",
     .capability = {.prefill = {},
                    .decode = {kBlackwell},
                    .kinds = {kMla},
                    .page_sizes = {128},
                    .dtypes = kAllFloats,
                    .kv_dtypes = kKvWithoutE5M2,
                    .window = false,
                    .chunk = false,
                    .sinks = false,
                    .cross = false,
                    .speculation = Speculation::kNone,
                    .deterministic = {}},
     .workspace = kernel_backend_workspace,
     .create = create_kernel_backend,
     .spec = &kPageTableSpec},
    {.name = "trtllm_mla",
     .summary = "TensorRT-LLM's MLA contract: page table, pages of 32 or 64",
     .capability = {.prefill = {kBlackwell, kBlackwellGeforce},
                    .decode = {kBlackwell, kBlackwellGeforce},
                    .kinds = {kMla},
                    .page_sizes = {32, 64},
                    .dtypes = kAllFloats,
                    .kv_dtypes = kKvWithoutE5M2,
                    .window = false,
                    .chunk = false,
                    .sinks = false,
                    .cross = false,
                    .speculation = Speculation::kChain,
                    .deterministic = {}},
     .workspace = kernel_backend_workspace,
     .create = create_kernel_backend,
     .spec = &kPageTableSpec},
    {.name = "aiter",
     .summary = "AMD's contract: CSR of page ids",
     .capability = {.prefill = {kAmd},
                    .decode = {kAmd},
                    .kinds = {kMha, kMla},
                    .page_sizes = PageSizes::all(),
                    .mla_num_q_heads = {16, 128},
                    .dtypes = kAllFloats,
                    .kv_dtypes = kAllKv,
                    .deterministic = {}},
     .workspace = kernel_backend_workspace,
     .create = create_kernel_backend,
     .spec = &kCsrSpec},
};

}  // namespace

std::span<const BackendEntry> backend_table() { return kTable; }

}  // namespace attend
