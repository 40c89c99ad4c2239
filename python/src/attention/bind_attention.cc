// Bindings of attention and mla, with the kernels' arguments.
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <array>

#include "module.h"
#include "tensors/arguments.h"
#include "tensors/result_tensor.h"

namespace attend::python {
namespace {

// Index of positions: exactly one of four kinds.
struct IndexArguments {
  TensorArgument page_table;                  // int32 [num_reqs, width]
  TensorArgument kv_indptr, kv_indices;       // int32 [num_reqs + 1] in pages, [num_pages_used]
  TensorArgument cu_seqlen_kv;                // int32 [num_reqs + 1]
  TensorArgument req_to_token, request_rows;  // int32 [num_rows, max_context_len], [num_reqs]

  kernels::KvIndex index(int32_t page_size, int64_t num_reqs, Device device) const;
};

const int32_t* int32_rows(std::string_view name, const TensorArgument& table, Device device) {
  require(table->rank == 2 && table->dtype == DType::kI32 && (table->strides[1] == 1 || table->shape[1] <= 1),
          name, " ", *table, ": expected int32 of two dimensions with rows in one run");
  require_same_device(name, *table, device);
  return static_cast<const int32_t*>(table->data);
}

const int32_t* int32_entries(std::string_view name, const TensorArgument& vector, int64_t size,
                             Device device) {
  require(vector.given(), name, " None: expected an int32 vector of ", size, " entries");
  const View<const int32_t> entries = int32_vector(name, vector, device);
  require(static_cast<int64_t>(entries.size()) == size, name, " of ", entries.size(), " entries: expected ",
          size);
  return entries.data();
}

kernels::KvIndex IndexArguments::index(int32_t page_size, int64_t num_reqs, Device device) const {
  using kernels::KvIndexKind;
  const int num_given = page_table.given() + kv_indices.given() + cu_seqlen_kv.given() + req_to_token.given();
  require(num_given == 1, num_given,
          " indices: expected one of page_table, kv_indptr with kv_indices, cu_seqlen_kv, ",
          "req_to_token with request_rows");
  require(kv_indptr.given() == kv_indices.given(),
          "kv_indptr, kv_indices: expected both, or neither with another index");
  require(request_rows.given() == req_to_token.given(),
          "req_to_token, request_rows: expected both, or neither with another index");
  kernels::KvIndex index{.page_size = page_size};
  if (page_table.given()) {
    index.kind = KvIndexKind::kPageTable;
    index.table = int32_rows("page_table", page_table, device);
    index.table_stride = page_table->strides[0];
    require(page_table->shape[0] == num_reqs, "page_table ", *page_table, ": expected a row for each of ",
            num_reqs, " requests");
  } else if (kv_indices.given()) {
    index.kind = KvIndexKind::kCsr;
    index.table = int32_vector("kv_indices", kv_indices, device).data();
    index.indptr = int32_entries("kv_indptr", kv_indptr, num_reqs + 1, device);
  } else if (cu_seqlen_kv.given()) {
    index.kind = KvIndexKind::kContiguous;
    index.indptr = int32_entries("cu_seqlen_kv", cu_seqlen_kv, num_reqs + 1, device);
  } else {
    index.kind = KvIndexKind::kRequestRows;
    index.table = int32_rows("req_to_token", req_to_token, device);
    index.table_stride = req_to_token->strides[0];
    index.rows = int32_entries("request_rows", request_rows, num_reqs, device);
  }
  return index;
}

// Checks entries of the index that run() does not check. On the CPU only.
void check_index_on_host(const IndexArguments& arguments, const kernels::KvIndex& index,
                         View<const int32_t> seqlen_kv) {
  for (size_t r = 0; r < seqlen_kv.size(); ++r) {
    if (index.kind == kernels::KvIndexKind::kRequestRows)
      require(index.rows[r] >= 0 && index.rows[r] < arguments.req_to_token->shape[0], "request_rows[", r,
              "] is ", index.rows[r], ": req_to_token has ", arguments.req_to_token->shape[0], " rows");
    if (index.kind == kernels::KvIndexKind::kCsr)
      require(index.indptr[r] >= 0 && index.indptr[r + 1] <= arguments.kv_indices->shape[0] &&
                  (int64_t{seqlen_kv[r]} + index.page_size - 1) / index.page_size <=
                      index.indptr[r + 1] - index.indptr[r],
              "kv_indptr of request ", r, " from ", index.indptr[r], " to ", index.indptr[r + 1], ": it has ",
              seqlen_kv[r], " keys, and there are ", arguments.kv_indices->shape[0], " kv_indices");
  }
}

// Returns the number of positions of a request that the index covers. On the CPU only.
int32_t kv_capacity(const IndexArguments& arguments, int32_t page_size, int64_t num_pages) {
  const int64_t tokens = arguments.page_table.given()     ? arguments.page_table->shape[1] * page_size
                         : arguments.req_to_token.given() ? arguments.req_to_token->shape[1]
                         : arguments.kv_indices.given()   ? arguments.kv_indices->shape[0] * page_size
                                                          : num_pages;
  return static_cast<int32_t>(std::min<int64_t>(tokens, std::numeric_limits<int32_t>::max()));
}

kernels::SplitRule split_rule_named(std::string_view name) {
  if (name == "balanced") return kernels::SplitRule::kBalanced;
  if (name == "fixed") return kernels::SplitRule::kFixed;
  require(name == "none", "split_rule ", name, ": expected balanced, fixed or none");
  return kernels::SplitRule::kNone;
}

// Arguments shared by attention and mla, in the order of both.
struct BatchObjects {
  nb::handle cu_seqlen_q, seqlen_kv, page_table, kv_indptr, kv_indices, cu_seqlen_kv, req_to_token,
      request_rows, sinks, tree_mask, positions;
};

struct BatchArguments {
  explicit BatchArguments(const BatchObjects& given)
      : cu_seqlen_q("cu_seqlen_q", given.cu_seqlen_q, Accepts::kInt32),
        seqlen_kv("seqlen_kv", given.seqlen_kv, Accepts::kInt32),
        sinks("sinks", given.sinks, Accepts::kFloat32),
        tree_mask("tree_mask", given.tree_mask, Accepts::kUint64),
        positions("positions", given.positions, Accepts::kInt32),
        index{{"page_table", given.page_table, Accepts::kInt32},
              {"kv_indptr", given.kv_indptr, Accepts::kInt32},
              {"kv_indices", given.kv_indices, Accepts::kInt32},
              {"cu_seqlen_kv", given.cu_seqlen_kv, Accepts::kInt32},
              {"req_to_token", given.req_to_token, Accepts::kInt32},
              {"request_rows", given.request_rows, Accepts::kInt32}} {}

  TensorArgument cu_seqlen_q, seqlen_kv, sinks, tree_mask, positions;
  IndexArguments index;
};

void set_batch(AttentionCall& call, const BatchArguments& batch, int32_t page_size, nb::handle max_seqlen_q,
               std::string_view split_rule) {
  const Device device = call.q.device;
  require_given("cu_seqlen_q", batch.cu_seqlen_q);
  require_given("seqlen_kv", batch.seqlen_kv);
  require(call.q.shape[2] > 0, "q ", call.q, ": expected a head_dim above 0");
  call.seqlen_kv = int32_vector("seqlen_kv", batch.seqlen_kv, device);
  const auto num_reqs = static_cast<int64_t>(call.seqlen_kv.size());
  call.cu_seqlen_q = {int32_entries("cu_seqlen_q", batch.cu_seqlen_q, num_reqs + 1, device),
                      static_cast<size_t>(num_reqs) + 1};
  call.cu_seqlen_q_name = "cu_seqlen_q";
  call.max_seqlen_q =
      max_seqlen_q.is_none() ? static_cast<int>(call.q.shape[0]) : int_argument("max_seqlen_q", max_seqlen_q);
  call.kv.index = batch.index.index(page_size, num_reqs, device);
  if (device.type == DeviceType::kCpu) check_index_on_host(batch.index, call.kv.index, call.seqlen_kv);
  call.source = {.num_reqs = static_cast<int32_t>(num_reqs),
                 .seqlen_q = {.cu = call.cu_seqlen_q.data()},
                 .seqlen_cached = {.per_request = call.seqlen_kv.data()},
                 .locations = {.capacity = kv_capacity(batch.index, page_size, call.kv.k.shape[0])}};
  call.score.sinks = parse_sinks("sinks", batch.sinks, call.q.shape[1], device);
  call.split_rule = split_rule_named(split_rule);
  require(batch.tree_mask.given() || !batch.positions.given(), "positions: expected None without tree_mask");
  if (!batch.tree_mask.given()) return;
  require(batch.tree_mask->rank == 2 && batch.tree_mask->shape[1] >= 1 &&
              batch.tree_mask->dtype == DType::kU64 && batch.tree_mask->is_contiguous(),
          "tree_mask ", *batch.tree_mask, ": expected uint64 [num_tokens, words]");
  require_same_device("tree_mask", *batch.tree_mask, device);
  call.tree_mask = batch.tree_mask->span<const uint64_t>();
  call.tree_mask_words = static_cast<int>(batch.tree_mask->shape[1]);
  call.positions = int32_vector("positions", batch.positions, device);
}

// Runs the call with new result tensors, or with `out`.
nb::object run_into(nb::handle q_object, AttentionCall& call, int64_t head_dim_v, nb::handle out_object,
                    bool return_lse) {
  const TensorArgument given("out", out_object, Accepts::kActivations, Access::kWrite);
  ResultTensor made, lse;
  if (!given.given())
    made = ResultTensor::like(q_object, call.q,
                              std::array<int64_t, 3>{call.q.shape[0], call.q.shape[1], head_dim_v});
  call.out = given.given() ? *given : made.view();
  require(call.out.rank == 3 && call.out.shape[0] == call.q.shape[0] &&
              call.out.shape[1] == call.q.shape[1] && call.out.shape[2] == head_dim_v,
          "out ", call.out, ": expected [", call.q.shape[0], ", ", call.q.shape[1], ", ", head_dim_v, "]");
  if (return_lse) {
    lse = ResultTensor::float32_like(q_object, call.q,
                                     std::array<int64_t, 2>{call.q.shape[0], call.q.shape[1]});
    call.lse = lse.view();
  }
  if (call.q.num_elements() > 0) run_for(q_object, call);
  nb::object out = given.given() ? nb::borrow(out_object) : made.take();
  return return_lse ? nb::make_tuple(std::move(out), lse.take()) : std::move(out);
}

nb::object attention(nb::handle q_object, nb::handle k_object, nb::handle v_object, nb::handle cu_seqlen_q,
                     nb::handle seqlen_kv, nb::handle max_seqlen_q, nb::handle page_table,
                     nb::handle kv_indptr, nb::handle kv_indices, nb::handle cu_seqlen_kv,
                     nb::handle req_to_token, nb::handle request_rows, nb::handle scale, bool causal,
                     int window_left, int chunk, float logit_cap, nb::handle sinks, float k_scale,
                     float v_scale, nb::handle tree_mask, nb::handle positions, std::string_view split_rule,
                     nb::handle out, bool return_lse) {
  const TensorArgument q("q", q_object, Accepts::kActivations), k("k", k_object, Accepts::kKeys),
      v("v", v_object, Accepts::kKeys);
  const BatchArguments batch({cu_seqlen_q, seqlen_kv, page_table, kv_indptr, kv_indices, cu_seqlen_kv,
                              req_to_token, request_rows, sinks, tree_mask, positions});
  require_given("q", q);
  require_given("k", k);
  require_given("v", v);
  require(
      q->rank == 3 && k->rank == 4 && v->rank == 4, "q ", *q, ", k ", *k, ", v ", *v,
      ": expected [num_tokens, num_q_heads, head_dim] and [num_pages, page_size, num_kv_heads, head_dim]");
  require_same_device("k", *k, q->device);
  require_same_device("v", *v, q->device);
  AttentionCall call;
  call.q = *q;
  call.kv.k = *k;
  call.kv.v = *v;
  call.kv.k_scale = positive("k_scale", k_scale);
  call.kv.v_scale = positive("v_scale", v_scale);
  call.attention_mask = {.causal = causal, .window_left = window_left, .chunk = chunk};
  call.score = {.scale = scale_or_default("scale", scale, q->shape[2]),
                .logit_cap = parse_cap("logit_cap", logit_cap)};
  set_batch(call, batch, get_page_size(*k), max_seqlen_q, split_rule);
  return run_into(q_object, call, v->shape[3], out, return_lse);
}

nb::object mla(nb::handle q_object, nb::handle q_rope_object, nb::handle latent_object,
               nb::handle cu_seqlen_q, nb::handle seqlen_kv, nb::handle scale, nb::handle max_seqlen_q,
               nb::handle page_table, nb::handle kv_indptr, nb::handle kv_indices, nb::handle cu_seqlen_kv,
               nb::handle req_to_token, nb::handle request_rows, bool causal, int window_left, int chunk,
               float logit_cap, nb::handle sinks, float scale_kv, nb::handle tree_mask, nb::handle positions,
               std::string_view split_rule, nb::handle out, bool return_lse) {
  const TensorArgument q("q", q_object, Accepts::kActivations),
      q_rope("q_rope", q_rope_object, Accepts::kActivations), latent("latent", latent_object, Accepts::kKeys);
  const BatchArguments batch({cu_seqlen_q, seqlen_kv, page_table, kv_indptr, kv_indices, cu_seqlen_kv,
                              req_to_token, request_rows, sinks, tree_mask, positions});
  require_given("q", q);
  require_given("q_rope", q_rope);
  require_given("latent", latent);
  require(q->rank == 3 && q_rope->rank == 3 && latent->rank == 3, "q ", *q, ", q_rope ", *q_rope, ", latent ",
          *latent,
          ": expected [num_tokens, num_q_heads, dim] and [num_pages, page_size, kv_lora_rank + rope_dim]");
  require_same_device("q_rope", *q_rope, q->device);
  require_same_device("latent", *latent, q->device);
  AttentionCall call;
  call.q = *q;
  call.q_rope = *q_rope;
  call.kv.k = *latent;
  call.kv.k_scale = positive("scale_kv", scale_kv);
  call.attention_mask = {.causal = causal, .window_left = window_left, .chunk = chunk};
  call.score = {.scale = parse_scale("scale", scale), .logit_cap = parse_cap("logit_cap", logit_cap)};
  set_batch(call, batch, get_page_size(*latent), max_seqlen_q, split_rule);
  return run_into(q_object, call, q->shape[2], out, return_lse);
}

constexpr const char* kAttentionDoc =
    R"(softmax(scale * q k^T) v over paged or contiguous K/V of ragged requests.

q           [num_tokens, num_q_heads, head_dim], the new tokens of all requests in sequence
k, v        [num_pages, page_size, num_kv_heads, head_dim], pages of 1 to 256 tokens (a power of two);
            float32, float16, bfloat16 or fp8; query head h reads KV head h * num_kv_heads // num_q_heads
cu_seqlen_q int32 [num_reqs + 1]; query j of request r is token cu_seqlen_q[r] + j
seqlen_kv   int32 [num_reqs], number of keys, including those of the new tokens, which are already stored

Index of keys, one of:
page_table                 int32 [num_reqs, width], page ids
kv_indptr, kv_indices      int32 [num_reqs + 1] in pages, and the page ids of all requests
cu_seqlen_kv               int32 [num_reqs + 1]; K/V of all requests in sequence, page_size 1
req_to_token, request_rows int32 [num_rows, max_context_len] token slots, and [num_reqs] the requests' rows

scale         of the scores; None: 1 / sqrt(head_dim)
max_seqlen_q  upper bound of the new tokens per request
causal        query j attends to keys up to position seqlen_kv - seqlen_q + j; otherwise to all keys
window_left   inclusive distance to the left; -1: no bound.  chunk: chunked local attention; 0: none
logit_cap     scores become cap * tanh(score / cap); 0: none
sinks         float32 [num_q_heads], logit that is added to the denominator, not to the LSE
k_scale, v_scale  stored values are x / scale
tree_mask, positions  uint64 [num_tokens, words] and int32 [num_tokens]: new tokens that each new token attends to
split_rule    split of keys among workers: balanced, fixed (a token's bits depend only on its request) or none

Returns out [num_tokens, num_q_heads, head_dim_v] of q's dtype, or (out, lse) with lse float32
[num_tokens, num_q_heads], natural logarithm; a token without visible keys has output 0 and LSE -inf.)";

constexpr const char* kMlaDoc =
    R"(Absorbed multi-head latent attention: one latent row per token is K of all heads, and its first part is V.

q       [num_tokens, num_q_heads, kv_lora_rank]     q_rope  [num_tokens, num_q_heads, rope_dim]
latent  [num_pages, page_size, kv_lora_rank + rope_dim]
scale   factor of the scores; it has no default, since it depends on the head dim before absorption

Other arguments and results are those of attention, with head_dim_v = kv_lora_rank.)";

}  // namespace

void bind_attention(Module& module) {
  const auto none = [](const char* name) { return nb::arg(name).none() = nb::none(); };
  module.def("attention", &attention, kAttentionDoc, nb::arg("q").none(), nb::arg("k").none(),
             nb::arg("v").none(), nb::arg("cu_seqlen_q").none(), nb::arg("seqlen_kv").none(), nb::kw_only(),
             none("max_seqlen_q"), none("page_table"), none("kv_indptr"), none("kv_indices"),
             none("cu_seqlen_kv"), none("req_to_token"), none("request_rows"), none("scale"),
             nb::arg("causal") = true, nb::arg("window_left") = -1, nb::arg("chunk") = 0,
             nb::arg("logit_cap") = 0.0f, none("sinks"), nb::arg("k_scale") = 1.0f, nb::arg("v_scale") = 1.0f,
             none("tree_mask"), none("positions"), nb::arg("split_rule") = "balanced", none("out"),
             nb::arg("return_lse") = false);
  module.def("mla", &mla, kMlaDoc, nb::arg("q").none(), nb::arg("q_rope").none(), nb::arg("latent").none(),
             nb::arg("cu_seqlen_q").none(), nb::arg("seqlen_kv").none(), nb::arg("scale").none(),
             nb::kw_only(), none("max_seqlen_q"), none("page_table"), none("kv_indptr"), none("kv_indices"),
             none("cu_seqlen_kv"), none("req_to_token"), none("request_rows"), nb::arg("causal") = true,
             nb::arg("window_left") = -1, nb::arg("chunk") = 0, nb::arg("logit_cap") = 0.0f, none("sinks"),
             nb::arg("scale_kv") = 1.0f, none("tree_mask"), none("positions"),
             nb::arg("split_rule") = "balanced", none("out"), nb::arg("return_lse") = false);
}

}  // namespace attend::python
