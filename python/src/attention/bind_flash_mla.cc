// Bindings of FlashMLA's function, documented in attend/flash_mla.py.
#include <array>
#include <limits>

#include "attention/key_layout.h"
#include "attention/mla_plan.h"
#include "module.h"
#include "tensors/arguments.h"
#include "tensors/result_tensor.h"

namespace attend::python {
namespace {

// Runs the call with the plan of `metadata_object` on a GPU. On the CPU, where the host reads lengths, each
// call plans itself.
void run_call(nb::handle q_object, nb::handle metadata_object, AttentionCall& call) {
  require(metadata_object.is_none() || nb::isinstance<MlaPlan>(metadata_object),
          "tile_scheduler_metadata: expected the result of attend's get_mla_metadata, or None");
  if (call.q.num_elements() == 0) return;
  if (metadata_object.is_none() || call.q.device.type == DeviceType::kCpu) return run_for(q_object, call);
  nb::cast<MlaPlan&>(metadata_object).run(call, workspaces(), current_stream(q_object, call.q.device));
}

// Returns the latent rows of one K/V head: [num_pages, page_size, head_dim].
TensorView select_head(const TensorView& k_cache, int64_t head) {
  TensorView rows = k_cache.slice(2, head, head + 1);
  rows.rank = 3;
  rows.shape[2] = k_cache.shape[3];
  rows.strides[2] = k_cache.strides[3];
  return rows;
}

// Returns (out, softmax_lse).
nb::tuple flash_mla(nb::handle q_object, nb::handle k_cache_object, nb::handle page_table_object,
                    nb::handle cache_seqlens_object, int64_t head_dim_v, nb::handle metadata_object,
                    nb::handle softmax_scale, bool causal, nb::handle sinks_object) {
  const TensorArgument q("q", q_object, Accepts::kActivations),
      k_cache("k_cache", k_cache_object, Accepts::kKeys),
      page_table("block_table", page_table_object, Accepts::kInt32);
  const TensorArgument cache_seqlens("cache_seqlens", cache_seqlens_object, Accepts::kInt32),
      sinks("attn_sink", sinks_object, Accepts::kFloat32);
  require_given("q", q);
  require_given("k_cache", k_cache);
  require_given("block_table", page_table);
  require_given("cache_seqlens", cache_seqlens);
  require(q->rank == 4, "q ", *q, ": expected [batch, seqlen_q, num_heads, head_dim]");
  require(k_cache->rank == 4, "k_cache ", *k_cache,
          ": expected [num_pages, page_size, num_kv_heads, head_dim]");
  const Device device = q->device;
  require_same_device("k_cache", *k_cache, device);
  const auto num_reqs = static_cast<int>(q->shape[0]);
  const int64_t seqlen_q = q->shape[1], num_q_heads = q->shape[2], head_dim = q->shape[3];
  const int64_t num_kv_heads = k_cache->shape[2];
  require(num_kv_heads > 0 && num_q_heads % num_kv_heads == 0, "k_cache ", *k_cache,
          ": expected a number of heads that divides the ", num_q_heads, " of q");
  require(k_cache->shape[3] == head_dim, "k_cache ", *k_cache, ": expected a head_dim of ", head_dim,
          ", as q ", *q);
  require(head_dim_v > 0 && head_dim_v <= head_dim, "head_dim_v ", head_dim_v,
          ": expected at most the head_dim ", head_dim, " of q, whose other elements are its rotary part");
  const View<const int32_t> seqlens = int32_vector("cache_seqlens", cache_seqlens, device);
  require(seqlens.size() == static_cast<size_t>(num_reqs), "cache_seqlens of ", seqlens.size(),
          " entries: expected ", num_reqs);

  AttentionCall call;
  const TensorView tokens = merge_first_two("q", *q);
  call.q = tokens.slice(2, 0, head_dim_v);
  call.q_rope = tokens.slice(2, head_dim_v, head_dim);
  const KeyLayout keys = paged_keys({.k = {"k_cache", *k_cache}, .v = {"k_cache", *k_cache}},
                                    {"block_table", *page_table}, num_reqs);
  call.kv = keys.kv;
  call.source = {.num_reqs = num_reqs,
                 .seqlen_q = {.uniform = static_cast<int32_t>(seqlen_q)},
                 .seqlen_cached = {.per_request = seqlens.data()},
                 .locations = keys.locations};
  call.seqlen_kv = seqlens;
  call.max_seqlen_q = static_cast<int>(seqlen_q);
  call.attention_mask = {.causal = causal};
  call.score = {.scale = scale_or_default("softmax_scale", softmax_scale, head_dim),
                .sinks = parse_sinks("attn_sink", sinks, num_q_heads, device)};

  auto [out, made_lse] = ResultTensor::like_and_float32(
      q_object, *q, std::array<int64_t, 4>{num_reqs, seqlen_q, num_q_heads, head_dim_v},
      DenseLse::dense_shape(num_reqs, seqlen_q, num_q_heads));
  call.empty_lse = std::numeric_limits<float>::infinity();  // FlashMLA's value
  DenseLse lse(std::move(made_lse), seqlen_q);
  call.out = merge_first_two("out", out.view());
  call.lse = lse.tokens();
  // The kernels support one K/V head, so each head is a call with its query heads.
  const int64_t group = num_q_heads / num_kv_heads;
  if (num_kv_heads == 1) {
    call.kv.k = select_head(*k_cache, 0);
    run_call(q_object, metadata_object, call);
    return nb::make_tuple(out.take(), lse.take());
  }
  for (int64_t head = 0; head < num_kv_heads; ++head) {
    AttentionCall one = call;
    const int64_t begin = head * group, end = begin + group;
    for (TensorView* view : {&one.q, &one.q_rope, &one.out, &one.lse}) *view = view->slice(1, begin, end);
    if (!call.score.sinks.empty())
      one.score.sinks = call.score.sinks.subspan(static_cast<size_t>(begin), static_cast<size_t>(group));
    one.kv.k = select_head(*k_cache, head);
    run_call(q_object, metadata_object, one);
  }
  return nb::make_tuple(out.take(), lse.take());
}

}  // namespace

void bind_flash_mla(Module& module) {
  const auto object = [](const char* name) { return nb::arg(name).none(); };
  Class<MlaPlan>(module, "MlaPlan", "Plan shared by the calls of flash_mla_with_kvcache within a step.")
      .def(nb::init<>());
  module.def("flash_mla", &flash_mla, object("q"), object("k_cache"), object("block_table"),
             object("cache_seqlens"), nb::arg("head_dim_v"), object("tile_scheduler_metadata"),
             object("softmax_scale"), nb::arg("causal"), object("attn_sink"));
}

}  // namespace attend::python
