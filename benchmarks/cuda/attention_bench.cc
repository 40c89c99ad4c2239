// Times attention on the GPU. Decode cases are compared with their limit, the fastest read measured in this
// run. Prefill cases print TFLOP/s, to be compared with torch_sdpa.py in the same session. Kernels run in
// CUDA graphs; K/V of short cases rotate through a pool larger than L2.
//
//   cuda_attention_bench [words...]   only cases with a name that contains one of the words, or equals it
//   (=NAME)
//
// Attention is timed with an existing plan; short cases also with a plan for each call.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attend/bench/cuda/gpu_probes.h"
#include "attend/bench/timing.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/attention/cuda/common/plan/device_plan.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/tensor/cuda.h"

namespace attend::bench {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};

struct Case {
  std::string name;
  int batch = 1, seqlen_q = 1, seqlen_kv = 1;
  int num_q_heads = 64, num_kv_heads = 8;
  int head_dim = 128;
  int page_size = 64;
  bool causal = true;
  bool mla = false;  // absorbed, 512 + 64
  DType kv_dtype = DType::kBF16;
  bool multiplies_e4m3 = false;  // queries are e4m3 too
  bool all_rows = false;         // also with the kernels that load row by row
  bool skewed = false;           // lengths from near 0 to 2 seqlen_kv, mean seqlen_kv
  kernels::SplitRule split_rule = kernels::SplitRule::kBalanced;
  int split_tokens = 256;

  std::vector<int32_t> lengths() const {
    std::vector<int32_t> all(static_cast<size_t>(batch), seqlen_kv);
    for (size_t r = 0; skewed && r < all.size(); ++r)
      all[r] = std::max(
          seqlen_q,
          static_cast<int>(seqlen_kv * 2.0 * (static_cast<double>(r * 7919 % all.size()) + 0.5) / batch));
    return all;
  }
};

class Bench {
 public:
  Bench() : stream_(kGpu), info_(cuda::device_info(kGpu)) {
    pool_ = cuda::empty({kPoolBytes}, DType::kU8, kGpu);
    queries_ = cuda::empty({kQueryBytes}, DType::kU8, kGpu);
    out_ = cuda::empty({kQueryBytes}, DType::kU8, kGpu);
    fill(pool_.view());
    fill(queries_.view());
    measure_read();
  }

  void run(const Case& c) {
    const int64_t num_tokens = int64_t{c.batch} * c.seqlen_q;
    // Bytes per row of K and V each, or of the latent row.
    const int64_t row_bytes =
        int64_t{c.mla ? kLatentDim : c.num_kv_heads * c.head_dim} * static_cast<int64_t>(size_of(c.kv_dtype));
    const int64_t num_pools = c.mla ? 1 : 2;
    const int64_t num_pool_pages = kPoolBytes / num_pools / row_bytes / c.page_size;
    std::vector<int32_t> lengths = c.lengths();
    const int64_t width = (*std::max_element(lengths.begin(), lengths.end()) + c.page_size - 1) / c.page_size;
    const int64_t num_kv_tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    const int64_t kv_bytes = num_pools * num_kv_tokens * row_bytes;
    const int rotations =
        static_cast<int>(std::clamp<int64_t>(3 * static_cast<int64_t>(info_.l2_bytes) / kv_bytes + 1, 1,
                                             std::max<int64_t>(1, num_pool_pages / (width * c.batch))));
    const bool is_slow = kv_bytes > (int64_t{1} << 28) || num_tokens * c.seqlen_kv > (int64_t{1} << 23);
    const int repeats = std::max(rotations, is_slow ? 8 : 32);

    // Pages in a random order, equal in every run.
    std::vector<int32_t> pages(static_cast<size_t>(rotations * width * c.batch));
    std::iota(pages.begin(), pages.end(), 0);
    std::mt19937 random(1);
    for (size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[random() % i]);
    const Tensor table = upload(pages);
    std::vector<int32_t> cu(static_cast<size_t>(c.batch) + 1);
    for (int r = 0; r <= c.batch; ++r) cu[static_cast<size_t>(r)] = r * c.seqlen_q;
    const Tensor cu_seqlen_q = upload(cu), seqlen_kv = upload(lengths);

    kernels::MlaArgs latent;
    const auto rows = [&](const Tensor& in, int64_t head_dim) {
      return TensorView::contiguous(in.view().data, DType::kBF16, {num_tokens, c.num_q_heads, head_dim},
                                    kGpu);
    };
    latent.q = rows(queries_, kLatentDim - kRopeDim);
    latent.q_rope = rows(queries_, kRopeDim);
    latent.out = rows(out_, kLatentDim - kRopeDim);
    latent.latent = TensorView::contiguous(pool_.view().data, c.kv_dtype,
                                           {num_pool_pages, c.page_size, kLatentDim}, kGpu);
    kernels::AttentionArgs args;
    args.q = TensorView::contiguous(queries_.view().data, c.multiplies_e4m3 ? DType::kF8E4M3 : DType::kBF16,
                                    {num_tokens, c.num_q_heads, c.head_dim}, kGpu);
    args.out =
        TensorView::contiguous(out_.view().data, DType::kBF16, {num_tokens, c.num_q_heads, c.head_dim}, kGpu);
    const auto half = [&](int64_t first) {
      return TensorView::contiguous(static_cast<char*>(pool_.view().data) + first, c.kv_dtype,
                                    {num_pool_pages, c.page_size, c.num_kv_heads, c.head_dim}, kGpu);
    };
    args.kv.k = half(0);
    args.kv.v = half(kPoolBytes / 2);
    args.kv.index = {
        .kind = kernels::KvIndexKind::kPageTable, .page_size = c.page_size, .table_stride = width};
    args.batch.cu_seqlen_q = cu_seqlen_q.span<int32_t>();
    args.batch.seqlen_kv = seqlen_kv.span<int32_t>();
    args.batch.max_seqlen_q = c.seqlen_q;
    args.batch.max_seqlen_kv = *std::max_element(lengths.begin(), lengths.end());
    args.attention_mask.causal = c.causal;
    args.score.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    latent.batch = args.batch;
    latent.score.scale = 0.07f;
    kernels::AttentionPlan plan({.max_reqs = c.batch,
                                 .max_tokens = static_cast<int>(num_tokens),
                                 .max_kv_tokens = num_kv_tokens,
                                 .num_q_heads = c.num_q_heads,
                                 .num_kv_heads = c.mla ? 1 : c.num_kv_heads,
                                 .head_dim_v = c.mla ? kLatentDim - kRopeDim : c.head_dim,
                                 .split_rule = c.split_rule,
                                 .split_tokens = c.split_tokens},
                                kGpu);
    Stream& stream = stream_.get();
    const double plan_us =
        time_graph(stream, 32, [&](int) { plan.plan(args.batch, args.attention_mask, stream); });
    const auto attend = [&](int i) {
      args.kv.index.table = table.as<int32_t>() + i % rotations * width * c.batch;
      latent.index = args.kv.index;
      if (c.mla)
        kernels::mla(latent, plan, stream);
      else if (c.all_rows)
        kernels::cuda::attention(args, plan.device_plan(), stream, all_rows_on());
      else
        kernels::attention(args, plan, stream);
    };
    if (c.multiplies_e4m3) fill_with_e4m3();
    const double us = time_graph(stream, repeats, attend);
    std::printf("%-34s %10.1f us", c.name.c_str(), us);
    if (c.seqlen_q <= 16) {
      const double rate = static_cast<double>(kv_bytes) / us * 1e-3;
      std::printf(" %7.0f GB/s, %5.1f %% of read", rate, 100.0 * rate / read_gbps_);
      if (c.mla)
        std::printf(", %.0f TFLOP/s", 2.0 * static_cast<double>(num_kv_tokens) * c.seqlen_q * c.num_q_heads *
                                          (2 * kLatentDim - kRopeDim) / us * 1e-6);
    } else {
      const double s = c.seqlen_q, prefix = c.seqlen_kv - c.seqlen_q;
      const double pairs = s * prefix + (c.causal ? s * s / 2 : s * s);
      std::printf(" %7.1f TFLOP/s", 4.0 * c.batch * c.num_q_heads * c.head_dim * pairs / us * 1e-6);
    }
    std::printf("; plan %.1f us, %s", plan_us, plan.device_plan().view().streamed ? "streamed" : "whole");
    if (c.seqlen_q <= 16) {
      const double planned_us = time_graph(stream, repeats, [&](int i) {
        plan.plan(args.batch, args.attention_mask, stream);
        attend(i);
      });
      const double inline_us = time_graph(stream, repeats, [&](int i) {
        plan.plan_inline(args.batch, args.attention_mask, stream);
        attend(i);
      });
      std::printf("; with a plan %.1f us, planned inline %.1f us", planned_us, inline_us);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  static constexpr int kLatentDim = 576, kRopeDim = 64;
  static constexpr int64_t kPoolBytes = int64_t{9} << 30, kQueryBytes = int64_t{1} << 29;

  // Random bf16 values, mostly in (-1, 1); for fp8 the bytes are random too.
  void fill(const TensorView& device) {
    const int64_t num_elements = device.num_elements() / 2;
    kernels::fill_random(TensorView::contiguous(device.data, DType::kBF16, {num_elements}, kGpu),
                         {.deviation = 0.5f}, stream_.get());
  }

  // Fills the start of queries, keys and values with normally distributed e4m3 values, as in quantized
  // models, for all later cases.
  void fill_with_e4m3() {
    if (std::exchange(filled_with_e4m3_, true)) return;
    constexpr int64_t kPieceBytes = int64_t{1} << 24, kFilledBytes = int64_t{1} << 29;
    Tensor piece = Tensor::empty({kPieceBytes}, DType::kU8);
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < kPieceBytes; ++i) piece.as<uint8_t>()[i] = F8E4M3(normal(random)).bits;
    auto* const pool = static_cast<char*>(pool_.view().data);
    for (void* const begin :
         {queries_.view().data, static_cast<void*>(pool), static_cast<void*>(pool + kPoolBytes / 2)})
      for (int64_t at = 0; at < kFilledBytes; at += kPieceBytes)
        cuda::copy(piece,
                   TensorView::contiguous(static_cast<char*>(begin) + at, DType::kU8, {kPieceBytes}, kGpu),
                   stream_.get());
    cuda::synchronize(stream_.get());
  }

  static kernels::cuda::AttentionTuning all_rows_on() {
    kernels::cuda::AttentionTuning tuning = kernels::cuda::attention_tuning(kernels::cuda::gpu_facts(kGpu));
    tuning.prefills_e4m3 = tuning.prefills_96 = true;
    return tuning;
  }

  Tensor upload(const std::vector<int32_t>& values) {
    const auto count = static_cast<int64_t>(values.size());
    Tensor device = cuda::empty({count}, DType::kI32, kGpu);
    cuda::copy(TensorView::contiguous(const_cast<int32_t*>(values.data()), DType::kI32, {count}), device,
               stream_.get());
    cuda::synchronize(stream_.get());
    return device;
  }

  void measure_read() {
    const Tensor sink = cuda::zeros({1}, DType::kF32, kGpu);
    const size_t num_bytes = size_t{4} << 30;
    for (int ctas_per_sm : {1, 2, 4}) {
      const double us = time_graph(stream_.get(), 4, [&](int) {
        launch_read(pool_.view().data, num_bytes, sink.as<float>(), ctas_per_sm * info_.num_sms,
                    stream_.get().handle);
      });
      read_gbps_ = std::max(read_gbps_, static_cast<double>(num_bytes) / us * 1e-3);
    }
    std::printf("%s, %d SMs; fastest read %.0f GB/s\n", info_.name.c_str(), info_.num_sms, read_gbps_);
  }

  cuda::OwnedStream stream_;
  cuda::DeviceInfo info_;
  Tensor pool_, queries_, out_;
  double read_gbps_ = 0.0;
  bool filled_with_e4m3_ = false;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const auto& [batch, kv] : {std::pair{1, 1024},
                                  {1, 2048},
                                  {8, 1024},
                                  {8, 2048},
                                  {1, 8192},
                                  {1, 131072},
                                  {8, 8192},
                                  {32, 1024},
                                  {32, 8192},
                                  {128, 1024},
                                  {128, 8192},
                                  {256, 1024}})
    list.push_back({.name = "decode b" + std::to_string(batch) + " kv" + std::to_string(kv),
                    .batch = batch,
                    .seqlen_kv = kv});
  for (int page_size : {1, 16})
    list.push_back({.name = "decode b32 kv8192 page " + std::to_string(page_size),
                    .batch = 32,
                    .seqlen_kv = 8192,
                    .page_size = page_size});
  list.push_back({.name = "decode b256 kv8192 8/1",
                  .batch = 256,
                  .seqlen_kv = 8192,
                  .num_q_heads = 8,
                  .num_kv_heads = 1});
  list.push_back({.name = "decode b128 kv2048 8/1",
                  .batch = 128,
                  .seqlen_kv = 2048,
                  .num_q_heads = 8,
                  .num_kv_heads = 1});
  for (const auto& [batch, kv] : {std::pair{2, 2048}, {4, 2048}, {8, 512}, {12, 2048}, {16, 1024}})
    list.push_back({.name = "decode b" + std::to_string(batch) + " kv" + std::to_string(kv),
                    .batch = batch,
                    .seqlen_kv = kv});
  for (const auto& [batch, q, kv] :
       {std::tuple{1, 1, 8192}, {1, 1, 131072}, {1, 4, 8192}, {4, 4, 65536}, {16, 3, 8192}, {16, 8, 8192}})
    list.push_back({.name = (q == 1 ? "decode b" : "verify b") + std::to_string(batch) + " kv" +
                            std::to_string(kv) + " 16/2 q" + std::to_string(q),
                    .batch = batch,
                    .seqlen_q = q,
                    .seqlen_kv = kv,
                    .num_q_heads = 16,
                    .num_kv_heads = 2});
  list.push_back(
      {.name = "decode b200 kv500 d64", .batch = 200, .seqlen_kv = 500, .num_q_heads = 32, .head_dim = 64});
  for (const auto& [batch, kv] : {std::pair{1, 8192}, {32, 8192}})
    list.push_back({.name = "decode b" + std::to_string(batch) + " kv" + std::to_string(kv) + " d256",
                    .batch = batch,
                    .seqlen_kv = kv,
                    .num_q_heads = 16,
                    .num_kv_heads = 2,
                    .head_dim = 256});
  for (int q : {2, 4, 8})
    list.push_back(
        {.name = "verify b32 kv8192 q" + std::to_string(q), .batch = 32, .seqlen_q = q, .seqlen_kv = 8192});
  for (const auto& [name, dtype] : {std::pair{"e4m3", DType::kF8E4M3}, {"e5m2", DType::kF8E5M2}})
    for (const int batch : {8, 32})
      list.push_back({.name = "decode b" + std::to_string(batch) + " kv8192 " + name,
                      .batch = batch,
                      .seqlen_kv = 8192,
                      .kv_dtype = dtype});
  list.push_back({.name = "decode b3 kv777", .batch = 3, .seqlen_kv = 777});
  for (const auto& [batch, kv] : {std::pair{5, 1024}, {16, 2048}, {64, 1024}, {64, 4096}})
    list.push_back({.name = "ragged decode b" + std::to_string(batch) + " kv" + std::to_string(kv),
                    .batch = batch,
                    .seqlen_kv = kv,
                    .skewed = true});
  for (const int split_tokens : {256, 512, 1024}) {
    const std::string prefix = "splits of " + std::to_string(split_tokens) + " ";
    for (const auto& [batch, kv] : {std::pair{1, 1056}, {1, 8192}, {1, 131072}, {32, 8192}, {128, 1056}})
      list.push_back({.name = prefix + "decode b" + std::to_string(batch) + " kv" + std::to_string(kv),
                      .batch = batch,
                      .seqlen_kv = kv,
                      .split_rule = kernels::SplitRule::kFixed,
                      .split_tokens = split_tokens});
    list.push_back({.name = prefix + "prefill 32/8 d128 8192 causal",
                    .batch = 2,
                    .seqlen_q = 8192,
                    .seqlen_kv = 8192,
                    .num_q_heads = 32,
                    .split_rule = kernels::SplitRule::kFixed,
                    .split_tokens = split_tokens});
  }
  for (const auto& [batch, kv, heads] : {std::tuple{1, 4096, 128},
                                         {1, 65536, 128},
                                         {3, 777, 128},
                                         {32, 1024, 16},
                                         {32, 8192, 16},
                                         {32, 8192, 128},
                                         {128, 4096, 16},
                                         {128, 4096, 128}})
    list.push_back({.name = "mla decode b" + std::to_string(batch) + " kv" + std::to_string(kv) + " h" +
                            std::to_string(heads),
                    .batch = batch,
                    .seqlen_kv = kv,
                    .num_q_heads = heads,
                    .mla = true});
  for (const auto& [batch, kv, heads] :
       {std::tuple{32, 8192, 16}, {32, 8192, 128}, {128, 4096, 16}, {1, 65536, 128}})
    list.push_back({.name = "mla decode b" + std::to_string(batch) + " kv" + std::to_string(kv) + " h" +
                            std::to_string(heads) + " e4m3",
                    .batch = batch,
                    .seqlen_kv = kv,
                    .num_q_heads = heads,
                    .mla = true,
                    .kv_dtype = DType::kF8E4M3});
  list.push_back({.name = "mla ragged decode b32 kv2048 h128",
                  .batch = 32,
                  .seqlen_kv = 2048,
                  .num_q_heads = 128,
                  .mla = true,
                  .skewed = true});
  // New tokens of one request after a prefix: few work tiles.
  for (const auto& [q, kv, heads, kv_heads] : {std::tuple{512, 65536, 8, 1},
                                               {512, 8192, 32, 8},
                                               {512, 512, 32, 8},
                                               {128, 128, 32, 8},
                                               {128, 8192, 32, 8},
                                               {768, 8192, 32, 8}})
    list.push_back({.name = "chunk " + std::to_string(heads) + "/" + std::to_string(kv_heads) + " q" +
                            std::to_string(q) + " kv" + std::to_string(kv),
                    .seqlen_q = q,
                    .seqlen_kv = kv,
                    .num_q_heads = heads,
                    .num_kv_heads = kv_heads});
  struct Shape {
    int num_q_heads, num_kv_heads, head_dim;
  };
  for (const Shape& shape : {Shape{32, 8, 128}, {32, 8, 64}, {8, 2, 256}})
    for (int seqlen : {512, 1024, 2048, 4096, 8192, 16384})
      for (const bool causal : {true, false})
        list.push_back({.name = "prefill " + std::to_string(shape.num_q_heads) + "/" +
                                std::to_string(shape.num_kv_heads) + " d" + std::to_string(shape.head_dim) +
                                " " + std::to_string(seqlen) + (causal ? " causal" : " full"),
                        .batch = 16384 / seqlen,
                        .seqlen_q = seqlen,
                        .seqlen_kv = seqlen,
                        .num_q_heads = shape.num_q_heads,
                        .num_kv_heads = shape.num_kv_heads,
                        .head_dim = shape.head_dim,
                        .causal = causal});
  list.push_back({.name = "prefill 64/8 d128 b1 8192 causal", .seqlen_q = 8192, .seqlen_kv = 8192});
  for (int page_size : {1, 16})
    list.push_back({.name = "prefill 32/8 d128 8192 causal page " + std::to_string(page_size),
                    .batch = 2,
                    .seqlen_q = 8192,
                    .seqlen_kv = 8192,
                    .num_q_heads = 32,
                    .page_size = page_size});
  struct Fp8Prompts {
    int seqlen, head_dim;
    DType kv_dtype;
    const char* kv_name;
  };
  for (const Fp8Prompts& prompts : {Fp8Prompts{8192, 128, DType::kF8E4M3, "e4m3"},
                                    {2048, 128, DType::kF8E4M3, "e4m3"},
                                    {512, 128, DType::kF8E4M3, "e4m3"},
                                    {8192, 64, DType::kF8E4M3, "e4m3"},
                                    {8192, 128, DType::kF8E5M2, "e5m2"}})
    list.push_back({.name = "prefill 32/8 d" + std::to_string(prompts.head_dim) + " " +
                            std::to_string(prompts.seqlen) + " causal " + prompts.kv_name,
                    .batch = 16384 / prompts.seqlen,
                    .seqlen_q = prompts.seqlen,
                    .seqlen_kv = prompts.seqlen,
                    .num_q_heads = 32,
                    .head_dim = prompts.head_dim,
                    .kv_dtype = prompts.kv_dtype});
  for (const bool causal : {true, false})
    for (const bool own_instance : {false, true})
      list.push_back({.name = std::string("prefill 32/8 d96 8192 ") + (causal ? "causal" : "full") +
                              (own_instance ? " in 96 columns" : ""),
                      .batch = 2,
                      .seqlen_q = 8192,
                      .seqlen_kv = 8192,
                      .num_q_heads = 32,
                      .head_dim = 96,
                      .causal = causal,
                      .all_rows = own_instance});
  // Global layers of Gemma 4.
  for (const int batch : {1, 8, 32, 128})
    for (const int page_size : {64, 16, 1})
      if (page_size == 64 || batch == 32)
        list.push_back({.name = "decode 32/4 d512 b" + std::to_string(batch) + " kv8192 page " +
                                std::to_string(page_size),
                        .batch = batch,
                        .seqlen_kv = 8192,
                        .num_q_heads = 32,
                        .num_kv_heads = 4,
                        .head_dim = 512,
                        .page_size = page_size});
  for (const int seqlen_q : {4, 8})
    list.push_back({.name = "verify 32/4 d512 b8 q" + std::to_string(seqlen_q) + " kv8192",
                    .batch = 8,
                    .seqlen_q = seqlen_q,
                    .seqlen_kv = 8192,
                    .num_q_heads = 32,
                    .num_kv_heads = 4,
                    .head_dim = 512});
  struct WidePrompts {
    int batch, seqlen_q, page_size;
    bool causal;
  };
  for (const WidePrompts& prompts : {WidePrompts{1, 8192, 64, true},
                                     {1, 8192, 64, false},
                                     {4, 2048, 64, true},
                                     {1, 2048, 64, true},
                                     {1, 512, 64, true},
                                     {1, 8192, 16, true},
                                     {1, 8192, 1, true}})
    list.push_back({.name = "prefill 32/4 d512 " + std::to_string(prompts.batch) + " x " +
                            std::to_string(prompts.seqlen_q) + " page " + std::to_string(prompts.page_size) +
                            (prompts.causal ? " causal" : " full"),
                    .batch = prompts.batch,
                    .seqlen_q = prompts.seqlen_q,
                    .seqlen_kv = prompts.seqlen_q,
                    .num_q_heads = 32,
                    .num_kv_heads = 4,
                    .head_dim = 512,
                    .page_size = prompts.page_size,
                    .causal = prompts.causal});
  // Last, since they change the values in memory.
  for (const int head_dim : {128, 64})
    for (const int seqlen : {512, 2048, 4096, 8192, 16384})
      for (const bool causal : {true, false})
        list.push_back({.name = "prefill 32/8 d" + std::to_string(head_dim) + " " + std::to_string(seqlen) +
                                (causal ? " causal" : " full") + " e4m3 queries",
                        .batch = 16384 / seqlen,
                        .seqlen_q = seqlen,
                        .seqlen_kv = seqlen,
                        .num_q_heads = 32,
                        .head_dim = head_dim,
                        .causal = causal,
                        .kv_dtype = DType::kF8E4M3,
                        .multiplies_e4m3 = true,
                        .all_rows = true});
  return list;
}

}  // namespace
}  // namespace attend::bench

int main(int argc, char** argv) {
  if (attend::cuda::device_count() == 0) {
    std::printf("no GPU\n");
    return 1;
  }
  attend::bench::Bench bench;
  for (const attend::bench::Case& c : attend::bench::cases()) {
    const bool wanted = argc == 1 || std::any_of(argv + 1, argv + argc, [&](const char* word) {
                          return word[0] == '=' ? c.name == word + 1 : c.name.find(word) != std::string::npos;
                        });
    if (wanted) bench.run(c);
  }
  return 0;
}
