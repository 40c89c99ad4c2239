// Table of backends. A row with the name of a backend of SGLang implements that backend's contract with
// attend's kernels.
//
// Architectures, page sizes, head dims, KV dtypes, draft trees, determinism and missing features (window,
// chunk, sinks, cross) are limits of the contract. Other limits of the original kernels do not apply:
// attend's kernels support caps, sinks and scales that the backend of the same name would silently ignore.
#include "attend/backends/table.h"

#include "attend/backends/sparse_backend.h"

namespace attend {
namespace {

using kernels::KvIndexKind;
using enum Architecture;

constexpr Set<Architecture> kNvidia{kTuring, kAmpere, kAda, kHopper, kBlackwell, kBlackwellGeforce};
constexpr Set<Architecture> kGpus{kTuring, kAmpere, kAda, kHopper, kBlackwell, kBlackwellGeforce, kAmd};
constexpr Set<Architecture> kSm80To90{kAmpere, kAda, kHopper};
constexpr Set<Architecture> kSm80AndLater{kAmpere, kAda, kHopper, kBlackwell, kBlackwellGeforce};
constexpr Set<Architecture> kSm90AndLater{kHopper, kBlackwell, kBlackwellGeforce};
constexpr Set<Architecture> kSm100AndLater{kBlackwell, kBlackwellGeforce};

constexpr Set<DType> kFloats{DType::kF32, DType::kF16, DType::kBF16};
constexpr Set<DType> kFloatsAndE4M3{DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};
constexpr Set<DType> kFloatsAndFp8{DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};

// Same, plus rows that contain their scales, in the layout of FlashMLA.
constexpr Set<DType> kFloatsE4M3AndScaledRows{DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                                              DType::kU8};
constexpr Set<DType> kFloatsFp8AndScaledRows{DType::kF32,    DType::kF16,    DType::kBF16,
                                             DType::kF8E4M3, DType::kF8E5M2, DType::kU8};

constexpr HeadDims kLatentDims{576, 512};  // DeepSeek's latent row: rank 512, RoPE 64

constexpr BackendSpec kReferenceSpec{.index = KvIndexKind::kRequestRows,
                                     .kernel = KernelPreference::kReference};
constexpr BackendSpec kCpuSpec{.index = KvIndexKind::kRequestRows};
constexpr BackendSpec kTritonSpec{.index = KvIndexKind::kRequestRows};
constexpr BackendSpec kCsrSpec{.index = KvIndexKind::kCsr};
constexpr BackendSpec kPageTableSpec{.index = KvIndexKind::kPageTable};
constexpr BackendSpec kFp8QueriesSpec{.index = KvIndexKind::kPageTable, .quantizes_q_to_cache_dtype = true};

// A hardware prefetcher follows the rows of one head through a page; with 64 tokens, decode from DRAM reads
// at close to the machine's bandwidth (docs/kernels/attention-cpu.md). The cost: prefixes are shared in whole
// pages only.
constexpr int kCpuPageSize = 64;

// All features of attend's kernels except graphs, which CPUs do not support.
constexpr Capability kCpuMha{.prefill = {kCpu},
                             .decode = {kCpu},
                             .page_sizes = PageSizes::all(),
                             .preferred_page_size = kCpuPageSize,
                             .wide_heads = true,
                             .dtypes = kFloats,
                             .kv_dtypes = kFloatsAndFp8,
                             .graphs = false};
constexpr Capability kCpuMla{.prefill = {kCpu},
                             .decode = {kCpu},
                             .page_sizes = PageSizes::all(),
                             .preferred_page_size = kCpuPageSize,
                             .head_dims = kLatentDims,
                             .dtypes = kFloats,
                             .kv_dtypes = kFloatsFp8AndScaledRows,
                             .contiguous = true,
                             .graphs = false};

constexpr std::string_view kTorchNativeAliases[] = {"reference"};
constexpr std::string_view kTrtllmMlaAliases[] = {"cutedsl_mla", "tokenspeed_mla"};
constexpr std::string_view kCpuAliases[] = {"intel_amx"};
constexpr std::string_view kDsaAliases[] = {"nsa"};

constexpr BackendEntry kTable[] = {
    {.name = "torch_native",
     .aliases = kTorchNativeAliases,
     .summary = "the float64 reference, one element after another: the specification, and slow",
     .slow = true,
     .mha = kCpuMha,
     .mla = kCpuMla,
     .workspace_bytes = workspace_bytes_with_spec<kReferenceSpec>,
     .create = create_with_spec<kReferenceSpec>},
    {.name = "cpu",
     .aliases = kCpuAliases,
     .summary = "vectorized and threaded; portable, AVX2, AVX-512, AVX-512-BF16 or AMX by what the CPU has",
     .mha = kCpuMha,
     .mla = kCpuMla,
     .workspace_bytes = workspace_bytes_with_spec<kCpuSpec>,
     .create = create_with_spec<kCpuSpec>},
    // The factory of triton rejects encoder-decoder models.
    {.name = "triton",
     .summary = "Triton's contract: any GPU, any page size, tree masks",
     .mha = {.prefill = kGpus,
             .decode = kGpus,
             .page_sizes = PageSizes::all(),
             .wide_heads = true,
             .dtypes = kFloats,
             .kv_dtypes = kFloatsAndFp8,
             .cross = false},
     .mla = {.prefill = kGpus,
             .decode = kGpus,
             .page_sizes = PageSizes::all(),
             .head_dims = kLatentDims,
             .dtypes = kFloats,
             .kv_dtypes = kFloatsFp8AndScaledRows,
             .contiguous = true,
             .cross = false},
     .workspace_bytes = workspace_bytes_with_spec<kTritonSpec>,
     .create = create_with_spec<kTritonSpec>},
    // FlashInfer has no sinks, and SGLang does not allow it for Llama 4 (chunks). Its MLA draft backend
    // supports one branch (topk 1), and deterministic inference excludes it.
    {.name = "flashinfer",
     .summary = "FlashInfer's contract: CSR of page ids",
     .mha = {.prefill = kNvidia,
             .decode = kNvidia,
             .page_sizes = PageSizes::all(),
             .dtypes = kFloats,
             .kv_dtypes = kFloatsAndFp8,
             .chunk = false,
             .sinks = false},
     .mla = {.prefill = kSm80AndLater,
             .decode = kSm80AndLater,
             .page_sizes = PageSizes::all(),
             .head_dims = kLatentDims,
             .head_dim_rule = HeadDimRule::kExactly,
             .dtypes = kFloats,
             .kv_dtypes = kFloatsAndFp8,
             .contiguous = true,
             .window = false,
             .chunk = false,
             .sinks = false,
             .cross = false,
             .speculation = Speculation::kChain,
             .deterministic = {}},
     .workspace_bytes = workspace_bytes_with_spec<kCsrSpec>,
     .create = create_with_spec<kCsrSpec>},
    // Draft trees with a window become one table per draft token, which requires pages of 1.
    {.name = "fa3",
     .summary = "FlashAttention-3's contract: page table, any page size",
     .mha = {.prefill = kSm80To90,
             .decode = kSm80To90,
             .page_sizes = PageSizes::all(),
             .window_tree_page_sizes = {1},
             .dtypes = kFloats,
             .kv_dtypes = kFloatsAndE4M3,
             .cross_with_window = false},
     .mla = {.prefill = {kHopper},
             .decode = {kHopper},
             .page_sizes = PageSizes::all(),
             .head_dims = kLatentDims,
             .head_dim_rule = HeadDimRule::kExactly,
             .dtypes = kFloats,
             .kv_dtypes = kFloatsAndE4M3,
             .contiguous = true,
             .cross = false},
     .workspace_bytes = workspace_bytes_with_spec<kPageTableSpec>,
     .create = create_with_spec<kPageTableSpec>},
    // FA4: FlashInfer, FA3 and Triton serve draft trees with pages larger than 1. It does not quantize q, so
    // its KV dtype is not narrower than that of q.
    {.name = "fa4",
     .summary = "FlashAttention-4's contract: page table, pages of 1 or 128",
     .mha = {.prefill = kSm90AndLater,
             .decode = kSm90AndLater,
             .page_sizes = {1, 128},
             .tree_page_sizes = {1},
             .dtypes = kFloats,
             .kv_dtypes = kFloats,
             .cross_with_window = false},
     .mla = {.prefill = kSm90AndLater,
             .decode = kSm90AndLater,
             .page_sizes = {1},
             .head_dims = kLatentDims,
             .head_dim_rule = HeadDimRule::kExactly,
             .dtypes = kFloats,
             .kv_dtypes = kFloats,
             .contiguous = true,
             .cross = false,
             .deterministic = {kBlackwell}},
     .workspace_bytes = workspace_bytes_with_spec<kPageTableSpec>,
     .create = create_with_spec<kPageTableSpec>},
    // Kernels for pages of 128 require grouped query heads.
    {.name = "trtllm_mha",
     .summary = "TensorRT-LLM's MHA contract: page table, pages of 16 to 128",
     .mha = {.prefill = kSm90AndLater,
             .decode = kSm90AndLater,
             .page_sizes = {16, 32, 64, 128},
             .no_gqa_page_sizes = {16, 32, 64},
             .preferred_page_size = 64,
             .head_dim_rule = HeadDimRule::kEqualUpTo,
             .wide_heads = true,
             .dtypes = kFloats,
             .kv_dtypes = kFloatsAndE4M3,
             .cross = false,
             .speculation = Speculation::kChain,
             .deterministic = {}},
     .workspace_bytes = workspace_bytes_with_spec<kPageTableSpec>,
     .create = create_with_spec<kPageTableSpec>},
    {.name = "flashmla",
     .summary = "FlashMLA's contract: page table, pages of 64, decode",
     .mla = {.prefill = {},
             .decode = {kHopper},
             .page_sizes = {64},
             .head_dims = kLatentDims,
             .head_dim_rule = HeadDimRule::kExactly,
             .dtypes = kFloats,
             .kv_dtypes = kFloatsE4M3AndScaledRows,
             .window = false,
             .chunk = false,
             .sinks = false,
             .cross = false,
             .speculation = Speculation::kChain,
             .deterministic = {}},
     .workspace_bytes = workspace_bytes_with_spec<kPageTableSpec>,
     .create = create_with_spec<kPageTableSpec>},
    // Plain decode only: there is no draft backend.
    {.name = "cutlass_mla",
     .summary = "CUTLASS MLA's contract: page table, pages of 128, decode",
     .mla = {.prefill = {},
             .decode = {kBlackwell},
             .page_sizes = {128},
             .head_dims = kLatentDims,
             .head_dim_rule = HeadDimRule::kExactly,
             .dtypes = kFloats,
             .kv_dtypes = kFloatsAndE4M3,
             .window = false,
             .chunk = false,
             .sinks = false,
             .cross = false,
             .speculation = Speculation::kNone,
             .deterministic = {}},
     .workspace_bytes = workspace_bytes_with_spec<kPageTableSpec>,
     .create = create_with_spec<kPageTableSpec>},
    // Quantizes q together with RoPE if the cache is fp8.
    {.name = "trtllm_mla",
     .aliases = kTrtllmMlaAliases,
     .summary = "TensorRT-LLM's MLA contract: page table, pages of 32 or 64",
     .mla = {.prefill = kSm100AndLater,
             .decode = kSm100AndLater,
             .page_sizes = {32, 64},
             .head_dims = kLatentDims,
             .head_dim_rule = HeadDimRule::kExactly,
             .dtypes = kFloats,
             .kv_dtypes = kFloatsAndE4M3,
             .contiguous = true,
             .window = false,
             .chunk = false,
             .sinks = false,
             .cross = false,
             .speculation = Speculation::kChain,
             .deterministic = {}},
     .workspace_bytes = workspace_bytes_with_spec<kFp8QueriesSpec>,
     .create = create_with_spec<kFp8QueriesSpec>},
    // SGLang uses Triton for models with sinks on AMD.
    {.name = "aiter",
     .summary = "AMD's contract: CSR of page ids",
     .mha = {.prefill = {kAmd},
             .decode = {kAmd},
             .page_sizes = PageSizes::all(),
             .tree_page_sizes = {1},
             .dtypes = kFloats,
             .kv_dtypes = kFloatsAndFp8,
             .sinks = false,
             .deterministic = {}},
     .mla = {.prefill = {kAmd},
             .decode = {kAmd},
             .page_sizes = PageSizes::all(),
             .tree_page_sizes = {1},
             .head_dims = kLatentDims,
             .head_dim_rule = HeadDimRule::kExactly,
             .num_q_heads = {16, 128},
             .dtypes = kFloats,
             .kv_dtypes = kFloatsAndFp8,
             .contiguous = true,
             .sinks = false,
             .cross = false,
             .deterministic = {}},
     .workspace_bytes = workspace_bytes_with_spec<kCsrSpec>,
     .create = create_with_spec<kCsrSpec>},
    // Index queries and keys have no form for tree masks.
    {.name = "dsa",
     .aliases = kDsaAliases,
     .summary = "DeepSeek Sparse Attention: absorbed MLA over the keys that an indexer selects; on CPUs",
     .mla = {.prefill = {kCpu},
             .decode = {kCpu},
             .page_sizes = PageSizes::all(),
             .preferred_page_size = kCpuPageSize,
             .head_dims = kLatentDims,
             .dtypes = kFloats,
             .kv_dtypes = kFloatsFp8AndScaledRows,
             .contiguous = true,
             .window = false,
             .chunk = false,
             .cross = false,
             .bidirectional = false,
             .indexer = true,
             .speculation = Speculation::kChain,
             .graphs = false},
     .workspace_bytes = SparseBackend::workspace_bytes,
     .create = SparseBackend::create},
};

}  // namespace

std::span<const BackendEntry> backend_table() { return kTable; }

}  // namespace attend
