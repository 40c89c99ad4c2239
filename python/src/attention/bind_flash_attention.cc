// Bindings of FlashAttention-3's functions, documented in attend/flash_attn_interface.py.
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "attention/absorbed_call.h"
#include "attention/check_on_host.h"
#include "attention/flash_arguments.h"
#include "attention/key_layout.h"
#include "attention/rope_rows.h"
#include "attention/scheduler_metadata.h"
#include "module.h"
#include "released_gil.h"
#include "tensors/arguments.h"
#include "tensors/result_tensor.h"

namespace attend::python {
namespace {

// Returns the lengths of requests from an argument that is a vector, a number or None.
kernels::Lengths parse_lengths(std::string_view name, nb::handle number, const TensorArgument& vector,
                               int num_reqs, Device device) {
  if (!vector.given()) return {.uniform = int_argument(name, number)};
  const View<const int32_t> each = int32_vector(name, vector, device);
  require(each.size() == static_cast<size_t>(num_reqs), name, " of ", each.size(), " entries: expected ",
          num_reqs);
  return {.per_request = each.data()};
}

// Accepts None or a number instead of a tensor.
TensorArgument tensor_unless_number(std::string_view name, nb::handle object) {
  return is_number(object) ? TensorArgument() : TensorArgument(name, object, Accepts::kInt32);
}

// Cumulative lengths, num_reqs + 1 entries.
View<const int32_t> parse_cu_seqlens(std::string_view name, const TensorArgument& tensor, int num_reqs,
                                     Device device) {
  const View<const int32_t> cu = int32_vector(name, tensor, device);
  require(!tensor.given() || cu.size() == static_cast<size_t>(num_reqs) + 1, name, " of ", cu.size(),
          " entries: expected ", num_reqs + 1, " for ", num_reqs, " requests");
  return cu;
}

// Queries as tokens, ragged (with cumulative lengths) or dense.
struct Queries {
  TensorView tokens;  // [num_tokens, num_q_heads, head_dim]
  int num_reqs = 0, max_seqlen_q = 0;
  View<const int32_t> cu_seqlens = {};  // empty: dense
};
Queries parse_queries(const TensorView& q, const TensorArgument& cu_seqlens_q, nb::handle max_seqlen_q) {
  if (!cu_seqlens_q.given()) {
    require(q.rank == 4, "q ", q,
            ": expected [batch, seqlen, num_heads, head_dim], or [total_q, num_heads, head_dim] with "
            "cu_seqlens_q");
    return {.tokens = merge_first_two("q", q),
            .num_reqs = static_cast<int>(q.shape[0]),
            .max_seqlen_q = static_cast<int>(q.shape[1])};
  }
  require(q.rank == 3, "q ", q, ": expected [total_q, num_heads, head_dim] with cu_seqlens_q");
  const View<const int32_t> cu = int32_vector("cu_seqlens_q", cu_seqlens_q, q.device);
  require(!cu.empty(), "cu_seqlens_q of 0 entries: expected one more than there are requests");
  require(
      !max_seqlen_q.is_none(),
      "max_seqlen_q None: expected the largest number of queries of a request, since cu_seqlens_q is given");
  return {.tokens = q,
          .num_reqs = static_cast<int>(cu.size()) - 1,
          .max_seqlen_q = int_argument("max_seqlen_q", max_seqlen_q),
          .cu_seqlens = cu};
}

// Keys of a call (paged, dense or ragged) and their number per request.
struct KeyArguments {
  std::string_view k_name, v_name, seqlens_name;
  TensorArgument k, v, cu_seqlens, page_table, rows;
  nb::handle seqlens_object;  // vector, number or None
  TensorArgument seqlens;     // if it is a vector

  KeyTensors tensors() const { return {.k = {k_name, *k}, .v = {v_name, *v}}; }
  KeyLayout layout(const KeyTensors& of, int num_reqs, Device device) const;
};

// Returns the layout of `of`, which has the shape of the keys except the head dims.
KeyLayout KeyArguments::layout(const KeyTensors& of, int num_reqs, Device device) const {
  if (page_table.given()) return paged_keys(of, {"page_table", *page_table}, num_reqs);
  if (cu_seqlens.given()) return ragged_keys(of, int32_vector("cu_seqlens_k", cu_seqlens, device));
  return dense_keys(of, int32_vector("cache_batch_idx", rows, device), num_reqs);
}

void set_keys(AttentionCall& call, const TensorView& q, const KeyArguments& keys) {
  const Device device = call.q.device;
  const int num_reqs = call.source.num_reqs;
  require_same_device(keys.k_name, *keys.k, device);
  require_same_device(keys.v_name, *keys.v, device);
  parse_cu_seqlens("cu_seqlens_k", keys.cu_seqlens, num_reqs, device);
  require(keys.page_table.given() + keys.rows.given() + keys.cu_seqlens.given() <= 1,
          "page_table, cache_batch_idx, cu_seqlens_k: expected at most one of them");
  const KeyLayout layout = keys.layout(keys.tensors(), num_reqs, device);
  require_keys_for({"q", q}, keys.tensors());
  call.kv = layout.kv;
  call.source.locations = layout.locations;
  call.source.seqlen_cached = layout.seqlens;
  if (!keys.seqlens_object.is_none())
    call.source.seqlen_cached =
        parse_lengths(keys.seqlens_name, keys.seqlens_object, keys.seqlens, num_reqs, device);
  else
    require(!keys.page_table.given(), keys.seqlens_name,
            " None: expected the lengths of requests with page_table");
}

// Adds the keys to append to the call.
void append_keys(AttentionCall& call, const TensorArgument& k, const TensorArgument& v,
                 View<const int32_t> cu_seqlens, const KeyTensors& cache) {
  require(k.given() == v.given(), "k and v to append: expected both or neither");
  require(k.given() || cu_seqlens.empty(), "cu_seqlens_k_new: expected None without k and v to append");
  if (!k.given()) return;
  require_same_device("k", *k, call.q.device);
  require_same_device("v", *v, call.q.device);
  const KeyTensors added{.k = {"k", *k}, .v = {"v", *v}};
  const bool is_ragged = !cu_seqlens.empty();
  for (const NamedView& named : {added.k, added.v}) {
    require(!is_ragged || named.view.rank == 3, named,
            ": expected [total_new, num_kv_heads, head_dim] with cu_seqlens_k_new");
    require(is_ragged || (named.view.rank == 4 && named.view.shape[0] == call.source.num_reqs), named,
            ": expected [", call.source.num_reqs,
            ", seqlen_new, num_kv_heads, head_dim], or cu_seqlens_k_new");
  }
  require_appendable(added, cache);
  if (is_ragged) {
    call.k_new = *k;
    call.v_new = *v;
    call.source.seqlen_new = {.cu = cu_seqlens.data()};
    return;
  }
  require(k->shape[1] <= std::numeric_limits<int32_t>::max(), added.k, ": expected fewer than 2^31 keys");
  call.k_new = merge_first_two("k", *k);
  call.v_new = merge_first_two("v", *v);
  call.source.seqlen_new = {.uniform = static_cast<int32_t>(k->shape[1])};
}

// Results of a call: new tensors, or the given `out`.
class Results {
 public:
  // Sets the views in `call`. The interface's LSE has shape [.., heads, tokens], the kernels' [tokens,
  // heads].
  Results(AttentionCall& call, nb::handle q_object, const TensorArgument& q, nb::handle out_object,
          bool wants_lse)
      : is_dense_(q->rank == 4) {
    const int64_t num_tokens = call.q.shape[0], num_q_heads = call.q.shape[1],
                  head_dim_v = call.kv.v.shape[3];
    const int64_t num_reqs = call.source.num_reqs, seqlen_q = call.max_seqlen_q;
    const TensorArgument given("out", out_object, Accepts::kActivations, Access::kWrite);
    if (given.given())
      given_out_ = nb::borrow(out_object);
    else if (is_dense_)
      out_ = ResultTensor::like(q_object, *q,
                                std::array<int64_t, 4>{num_reqs, seqlen_q, num_q_heads, head_dim_v});
    else
      out_ = ResultTensor::like(q_object, *q, std::array<int64_t, 3>{num_tokens, num_q_heads, head_dim_v});
    const TensorView& out = given.given() ? *given : out_.view();
    require(out.rank == q->rank, "out ", out, ": expected ", q->rank, " dimensions, as q ", *q);
    for (size_t dim = 0; dim < static_cast<size_t>(out.rank); ++dim) {
      const int64_t extent = dim + 1 == static_cast<size_t>(out.rank) ? head_dim_v : q->shape[dim];
      require(out.shape[dim] == extent, "out ", out, ": expected ", extent, " in dimension ", dim);
    }
    call.out = is_dense_ ? merge_first_two("out", out) : out;

    if (!wants_lse) return;
    if (is_dense_) {
      dense_lse_.emplace(q_object, *q, num_reqs, seqlen_q, num_q_heads);
      call.lse = dense_lse_->tokens();
    } else {
      lse_ = ResultTensor::float32_like(q_object, *q, std::array<int64_t, 2>{num_q_heads, num_tokens});
      call.lse = lse_->view().transpose(0, 1);
    }
  }

  // Returns out, or (out, softmax_lse). Called once, after they are written.
  nb::object take() {
    nb::object out = given_out_.is_valid() ? std::move(given_out_) : out_.take();
    if (dense_lse_.has_value()) return nb::make_tuple(std::move(out), dense_lse_->take());
    if (lse_.has_value()) return nb::make_tuple(std::move(out), lse_->take());
    return out;
  }

 private:
  bool is_dense_;
  nb::object given_out_;
  ResultTensor out_;
  std::optional<ResultTensor> lse_;
  std::optional<DenseLse> dense_lse_;
};

// Runs the call, with the plan of `metadata_object` unless it is None.
void run_call(nb::handle q_object, nb::handle metadata_object, AttentionCall& call) {
  require(metadata_object.is_none() || nb::isinstance<SchedulerMetadata>(metadata_object),
          "scheduler_metadata: expected the result of attend's get_scheduler_metadata");
  if (metadata_object.is_none()) return run_for(q_object, call);
  const auto& metadata = nb::cast<const SchedulerMetadata&>(metadata_object);
  if (lengths_differ(metadata, call)) return run_for(q_object, call);
  require_planned_for(metadata, call);
  const Stream stream = current_stream(q_object, call.q.device);
  if (stream.device.type == DeviceType::kCuda)
    return run_planned(call, *metadata.workspace, workspaces(), stream);
  // This order avoids waiting for the plan with the GIL held.
  const ReleasedGil others_run;
  const std::lock_guard one_call_at_a_time(metadata.workspace->in_use());
  run_planned(call, *metadata.workspace, workspaces(), stream);
}

std::optional<RotaryArguments> parse_rotary(const FlashArguments& arguments) {
  if (arguments.rotary_cos.is_none() && arguments.rotary_sin.is_none()) return std::nullopt;
  return RotaryArguments{.cos{"rotary_cos", arguments.rotary_cos, Accepts::kActivations},
                         .sin{"rotary_sin", arguments.rotary_sin, Accepts::kActivations},
                         .seqlens{"rotary_seqlens", arguments.rotary_seqlens, Accepts::kInt32},
                         .is_interleaved = bool_argument("rotary_interleaved", arguments.rotary_interleaved)};
}

// Returns true if kernels multiply e4m3 queries directly.
bool keeps_e4m3(const FlashArguments& arguments, const TensorView& q) {
  for (const nb::handle& given :
       {arguments.k, arguments.qv, arguments.rotary_cos, arguments.rotary_sin, arguments.seqused_q})
    if (!given.is_none()) return false;
  if (q.dtype != DType::kF8E4M3 || q.device.type != DeviceType::kCuda ||
      module_name(arguments.q) != "torch" || arguments.k_cache.is_none() || arguments.v_cache.is_none())
    return false;
  const TensorArgument k("k", arguments.k_cache, Accepts::kKeys), v("v", arguments.v_cache, Accepts::kKeys);
  if (q.rank < 3 || k->rank < 3 || v->rank < 3 || k->dtype != q.dtype) return false;
  const auto last = [](const TensorView& view, int from_end) {
    return view.shape[static_cast<size_t>(view.rank - from_end)];
  };
  const int64_t seqlen_q = q.rank == 4 ? q.shape[1]
                           : arguments.max_seqlen_q.is_none()
                               ? q.shape[0]
                               : int_argument("max_seqlen_q", arguments.max_seqlen_q);
  const int64_t num_kv_heads = std::max<int64_t>(last(*k, 2), 1);
  return kernels::multiplies_e4m3(q.device, last(q, 1), last(*v, 1), seqlen_q * (last(q, 2) / num_kv_heads));
}

// Returns the bfloat16 result for e4m3 queries of torch.
nb::object bfloat16_out(const FlashArguments& arguments) {
  const nb::object torch = nb::module_::import_("torch");
  nb::list shape;
  for (const nb::handle extent : arguments.q.attr("shape")) shape.append(extent);
  const size_t rank = nb::len(shape);
  shape[rank - 1] = arguments.v_cache.attr("shape")[nb::int_(-1)];
  return arguments.q.attr("new_empty")(shape, nb::arg("dtype") = torch.attr("bfloat16"));
}

kernels::HeadScales head_scales(const Descale& descale, Device device) {
  const kernels::RowScale rows = descale.rows(1, device);
  return {rows.data, rows.request_stride, rows.head_stride};
}

// Converts queries, new keys and rotary angles in fp8 to bfloat16, which represents each of their values
// exactly, since kernels do not support fp8 for them.
class WidenedArgument {
 public:
  // Replaces `object` by the converted one, unless `keeps` returns true for the tensor.
  WidenedArgument(std::string_view name, nb::handle& object,
                  const std::function<bool(const TensorView&)>& keeps = nullptr)
      : tensor_(name, object, Accepts::kKeys) {
    if (!tensor_.given() || (tensor_->dtype != DType::kF8E4M3 && tensor_->dtype != DType::kF8E5M2)) return;
    if (keeps && keeps(*tensor_)) return;
    if (is_numpy(object))
      wide_ = object.attr("astype")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
    else if (module_name(object) == "torch")
      wide_ = object.attr("to")(nb::module_::import_("torch").attr("bfloat16"));
    else
      fail(ErrorCode::kUnsupported, name, " ", *tensor_,
           ": expected bfloat16; fp8 is supported for torch and numpy");
    object = wide_;
    tensor_ = TensorArgument(name, object, Accepts::kActivations);
  }
  bool was_fp8() const { return wide_.is_valid(); }
  const TensorArgument& tensor() const { return tensor_; }

 private:
  nb::object wide_;
  TensorArgument tensor_;
};

// Returns one int32 per request, or null if not given.
const int32_t* each_request(std::string_view name, const TensorArgument& tensor, int num_reqs,
                            Device device) {
  if (!tensor.given()) return nullptr;
  const View<const int32_t> each = int32_vector(name, tensor, device);
  require(each.size() == static_cast<size_t>(num_reqs), name, " of ", each.size(), " entries: expected ",
          num_reqs);
  return each.data();
}

// Returns the part of absorbed queries that is multiplied by the values.
TensorView absorbed_queries(const TensorArgument& qv, const TensorView& q, const AttentionCall& call,
                            const Descales& descales) {
  if (!qv.given()) return {};
  require_same_device("qv", *qv, q.device);
  const int64_t head_dim_v = call.kv.v.shape[3];
  require(qv->rank == q.rank &&
              std::equal(q.shape.begin(), q.shape.begin() + q.rank - 1, qv->shape.begin()) &&
              qv->shape[static_cast<size_t>(q.rank - 1)] == head_dim_v,
          "qv ", *qv, ": expected the shape of q ", q, " with a head_dim of ", head_dim_v,
          ", the head_dim of the values");
  require(qv->dtype == q.dtype, "qv ", *qv, ": expected ", q.dtype, ", as q");
  for (const Descale* descale : {&descales.q, &descales.k, &descales.v})
    if (descale->is_tensor() || descale->number() != 1.0f)
      fail(ErrorCode::kUnsupported, descale->name(), ": expected None with qv");
  return q.rank == 4 ? merge_first_two("qv", *qv) : *qv;
}

// Allocates memory for the slots of keys after a leftpad in pages, with the leftpad's library.
ResultTensor key_slots_for(AttentionCall& call, nb::handle object, const TensorArgument& leftpad) {
  const kernels::KvLocations& locations = call.source.locations;
  if (!leftpad.given() || locations.table == nullptr) return {};
  if (locations.page_spacing == 0)
    fail(ErrorCode::kUnsupported, "cache_leftpad with pages of k_cache ", call.kv.k, " and v_cache ",
         call.kv.v, ": expected equal page strides that are multiples of a token");
  // float32 has the size of an int32, and is a dtype that results may have.
  ResultTensor slots = ResultTensor::float32_like(
      object, *leftpad, std::array<int64_t, 2>{call.source.num_reqs, locations.capacity});
  call.key_slots = {static_cast<int32_t*>(slots.view().data),
                    static_cast<size_t>(slots.view().num_elements())};
  return slots;
}

// Appends, and computes attention over the cache as latent rows: in place, or on a copy.
void run_with_qv(AttentionCall& call, const TensorView& qv, const FlashArguments& arguments,
                 const KeyArguments& keys) {
  if (call.appends()) {
    append(call, workspaces(), current_stream(arguments.q, call.q.device));
    call.k_new = call.v_new = {};
    call.rope_k_new = std::nullopt;
  }
  if (const std::optional<TensorView> shared = shared_rows(call.kv); shared.has_value())
    return run_absorbed(call, qv, *shared, arguments.q);
  const nb::object joined = joined_rows(arguments.v_cache, arguments.k_cache);
  const TensorArgument rows("k and v with qv", joined, Accepts::kKeys);
  const NamedView named{"k and v with qv", *rows};
  const KeyLayout layout = keys.layout({.k = named, .v = named}, call.source.num_reqs, call.q.device);
  call.kv.index = layout.kv.index;
  call.source.locations = layout.locations;
  run_absorbed(call, qv, layout.kv.k, arguments.q);
}

// Implements the three functions of the interface. Returns out, or (out, softmax_lse).
nb::object flash_attention(const FlashArguments& given_arguments) {
  FlashArguments arguments = given_arguments;
  require(arguments.sinks.is_none() || arguments.learnable_sink.is_none(),
          "sinks and learnable_sink: expected one of them; both are the same");
  const Access access = arguments.k.is_none() ? Access::kRead : Access::kWrite;
  const WidenedArgument wide_q("q", arguments.q,
                               [&](const TensorView&given) { return keeps_e4m3(arguments, given); }),
      wide_k("k", arguments.k), wide_v("v", arguments.v), wide_cos("rotary_cos", arguments.rotary_cos),
      wide_sin("rotary_sin", arguments.rotary_sin);
  const TensorArgument &q = wide_q.tensor(), &k_new = wide_k.tensor(), &v_new = wide_v.tensor();
  const TensorArgument qv("qv", arguments.qv, Accepts::kActivations),
      sinks("sinks", arguments.sinks.is_none() ? arguments.learnable_sink : arguments.sinks,
            Accepts::kFloat32);
  const TensorArgument cache_leftpad("cache_leftpad", arguments.cache_leftpad, Accepts::kInt32),
      seqused_q("seqused_q", arguments.seqused_q, Accepts::kInt32);
  const TensorArgument cu_seqlens_q("cu_seqlens_q", arguments.cu_seqlens_q, Accepts::kInt32);
  const TensorArgument cu_seqlens_k_new("cu_seqlens_k_new", arguments.cu_seqlens_k_new, Accepts::kInt32);
  const std::optional<RotaryArguments> rotary = parse_rotary(arguments);
  const Descales descales{.q{"q_descale", arguments.q_descale},
                          .k{"k_descale", arguments.k_descale},
                          .v{"v_descale", arguments.v_descale}};
  const bool keys_are_cache =
      arguments.keys_are_cache.is_none() || bool_argument("keys_are_cache", arguments.keys_are_cache);
  const std::string_view k_name = keys_are_cache ? "k_cache" : "k", v_name = keys_are_cache ? "v_cache" : "v",
                         seqlens_name = keys_are_cache ? "cache_seqlens" : "seqused_k";
  const KeyArguments keys{.k_name = k_name,
                          .v_name = v_name,
                          .seqlens_name = seqlens_name,
                          .k{k_name, arguments.k_cache, Accepts::kKeys, access},
                          .v{v_name, arguments.v_cache, Accepts::kKeys, access},
                          .cu_seqlens{"cu_seqlens_k", arguments.cu_seqlens_k, Accepts::kInt32},
                          .page_table{"page_table", arguments.page_table, Accepts::kInt32},
                          .rows{"cache_batch_idx", arguments.cache_batch_idx, Accepts::kInt32},
                          .seqlens_object = arguments.cache_seqlens,
                          .seqlens = tensor_unless_number(seqlens_name, arguments.cache_seqlens)};
  require(q.given() && keys.k.given() && keys.v.given(), "q, ", k_name, ", ", v_name,
          ": expected tensors, not None");

  AttentionCall call;
  call.new_keys_are_scaled = wide_k.was_fp8();
  const Queries queries = parse_queries(*q, cu_seqlens_q, arguments.max_seqlen_q);
  call.q = queries.tokens;
  call.max_seqlen_q = queries.max_seqlen_q;
  call.cu_seqlen_q = queries.cu_seqlens;
  call.source.num_reqs = queries.num_reqs;
  call.source.seqlen_q = {.cu = queries.cu_seqlens.data(), .uniform = queries.max_seqlen_q};
  set_keys(call, *q, keys);
  append_keys(call, k_new, v_new,
              parse_cu_seqlens("cu_seqlens_k_new", cu_seqlens_k_new, queries.num_reqs, q->device),
              keys.tensors());
  call.source.leftpad = each_request("cache_leftpad", cache_leftpad, queries.num_reqs, q->device);
  call.source.seqused_q = each_request("seqused_q", seqused_q, queries.num_reqs, q->device);
  if (call.source.seqused_q != nullptr) call.cu_seqlen_q = {};
  if (!call.appends() && call.source.seqlen_cached.per_request != nullptr && call.source.leftpad == nullptr &&
      call.source.seqused_q == nullptr)
    call.seqlen_kv = {call.source.seqlen_cached.per_request, static_cast<size_t>(queries.num_reqs)};

  call.attention_mask = parse_mask(bool_argument("causal", arguments.causal), arguments.window_size,
                                   int_argument("attention_chunk", arguments.attention_chunk));
  for (const Descale* descale : {&descales.q, &descales.k, &descales.v})
    descale->require_shape(queries.num_reqs, call.kv.k.shape[2]);
  call.kv.k_scale = descales.k.number();
  call.kv.v_scale = descales.v.number();
  const TensorView absorbed = absorbed_queries(qv, *q, call, descales);
  const int64_t head_dim = call.q.shape[2] + (qv.given() ? absorbed.shape[2] : 0);
  call.score = {
      .scale = scale_or_default("softmax_scale", arguments.softmax_scale, head_dim) * descales.q.number(),
      .logit_cap = parse_cap("softcap", float_argument("softcap", arguments.softcap)),
      .sinks = parse_sinks("sinks", sinks, call.q.shape[1], q->device)};
  const int64_t num_kv_heads = call.kv.k.shape[2], group = call.q.shape[1] / num_kv_heads;
  const Splits splits = make_splits(int_argument("num_splits", arguments.num_splits), queries.num_reqs,
                                    num_kv_heads, call.max_seqlen_q * group, q->device);
  call.split_rule = splits.rule;
  call.num_workers = splits.num_workers;

  const bool multiplies_e4m3 = q->dtype == DType::kF8E4M3;
  const nb::object e4m3_out =
      multiplies_e4m3 && arguments.out.is_none() ? bfloat16_out(arguments) : nb::object();
  if (e4m3_out.is_valid()) arguments.out = e4m3_out;
  Results results(call, arguments.q, q, arguments.out,
                  bool_argument("return_softmax_lse", arguments.return_softmax_lse));
  std::optional<RopeRows> rope_rows;
  const auto make_head_scales = [&]() -> AttentionCall::Descaled {
    const Device device = call.q.device;
    return {head_scales(descales.q, device), head_scales(descales.k, device),
            head_scales(descales.v, device)};
  };
  if (multiplies_e4m3) {
    const auto [q_scales, k_scales, v_scales] = make_head_scales();
    call.q_scales = q_scales;
    call.k_scales = k_scales;
    call.v_scales = v_scales;
  } else if (rotary.has_value() || descales.any_tensor()) {
    rope_rows.emplace(call, arguments.q, arguments.k, rotary, descales);
    if (!rotary.has_value()) call.descaled = make_head_scales();
  }
  const ResultTensor key_slots = key_slots_for(call, arguments.cache_leftpad, cache_leftpad);
  if (call.q.num_elements() == 0) return results.take();
  if (qv.given())
    run_with_qv(call, absorbed, arguments, keys);
  else
    run_call(arguments.q, arguments.scheduler_metadata, call);
  return results.take();
}

// Returns one plan for the calls of all layers with the same batch, lengths, heads and mask.
SchedulerMetadata scheduler_metadata(int num_reqs, int max_seqlen_q, int num_q_heads, int num_kv_heads,
                                     int head_dim, int head_dim_v, nb::handle seqlens_k_object,
                                     nb::handle cu_seqlens_q_object, int num_tokens, bool tokens_are_bound,
                                     nb::handle cu_seqlens_k_new_object, nb::handle leftpad_object,
                                     int max_seqlen_k_new, bool causal, nb::handle window_size,
                                     int attention_chunk, int num_splits, std::string_view kv_dtype) {
  const TensorArgument seqlens_k("cache_seqlens", seqlens_k_object, Accepts::kInt32),
      leftpad("cache_leftpad", leftpad_object, Accepts::kInt32),
      cu_seqlens_q("cu_seqlens_q", cu_seqlens_q_object, Accepts::kInt32),
      cu_seqlens_k_new("cu_seqlens_k_new", cu_seqlens_k_new_object, Accepts::kInt32);
  require(num_reqs >= 0 && max_seqlen_q >= 0 && max_seqlen_k_new >= 0, "batch_size ", num_reqs,
          ", max_seqlen_q ", max_seqlen_q, ", max_seqlen_k_new ", max_seqlen_k_new, ": expected at least 0");
  require(num_kv_heads > 0 && num_q_heads > 0 && num_q_heads % num_kv_heads == 0, "num_heads_kv ",
          num_kv_heads, ": expected a positive divisor of num_heads_q ", num_q_heads);
  require(head_dim > 0 && head_dim_v > 0, "headdim ", head_dim, ", headdim_v ", head_dim_v,
          ": expected above 0");
  require(seqlens_k.given(), "cache_seqlens None: expected an int32 vector of ", num_reqs, " lengths");
  const Device device = seqlens_k->device;
  AttentionCall call;
  call.max_seqlen_q = max_seqlen_q;
  call.num_tokens = num_tokens;
  call.source = {
      .num_reqs = num_reqs,
      .seqlen_q = {.cu = parse_cu_seqlens("cu_seqlens_q", cu_seqlens_q, num_reqs, device).data(),
                   .uniform = max_seqlen_q},
      .seqlen_cached = parse_lengths("cache_seqlens", seqlens_k_object, seqlens_k, num_reqs, device),
      .seqlen_new = {.cu = parse_cu_seqlens("cu_seqlens_k_new", cu_seqlens_k_new, num_reqs, device).data(),
                     .uniform = max_seqlen_k_new},
      .locations = {.capacity = std::numeric_limits<int32_t>::max()},
      .leftpad = each_request("cache_leftpad", leftpad, num_reqs, device)};
  call.attention_mask = parse_mask(causal, window_size, attention_chunk);
  if (device.type == DeviceType::kCpu) {
    check_queries_on_host("cu_seqlens_q", call.source, num_tokens, max_seqlen_q);
    check_appended_on_host(call.source, max_seqlen_k_new);
  }
  const int64_t max_rows = int64_t{max_seqlen_q} * (num_q_heads / num_kv_heads);
  const Splits splits = make_splits(num_splits, num_reqs, num_kv_heads, max_rows, device);
  const kernels::AttentionPlanLimits limits{
      .max_reqs = num_reqs,
      .max_tokens = num_tokens,
      .max_kv_tokens = device.type == DeviceType::kCpu ? num_kv_tokens_on_host(call) : 0,
      .num_q_heads = num_q_heads,
      .num_kv_heads = num_kv_heads,
      .head_dim_v = columns_at_once(head_dim, head_dim_v),
      .split_rule = splits.rule,
      .num_workers = splits.num_workers,
      .kv_dtype = parse_dtype(kv_dtype, "qkv_dtype")};
  SchedulerMetadata metadata = plan_once(call, limits, device, current_stream(seqlens_k_object, device));
  metadata.tokens_are_bound = tokens_are_bound;
  return metadata;
}

template <size_t>
using Object = nb::handle;

// All arguments are optional.
template <size_t... i>
void def_flash_attention(Module& module, std::index_sequence<i...>) {
  module.def(
      "flash_attention",
      [](Object<i>... objects) {
        FlashArguments arguments;
        ((arguments.*kFlashFields[i].object = objects), ...);
        return flash_attention(arguments);
      },
      (nb::arg(kFlashFields[i].name).none() = nb::none())...);
}

}  // namespace

void bind_flash_attention(Module& module) {
  Class<SchedulerMetadata>(module, "SchedulerMetadata", "A batch planned once, for the calls of all layers.");
  const auto object = [](const char* name) { return nb::arg(name).none(); };
  using nb::arg;
  def_flash_attention(module, std::make_index_sequence<std::size(kFlashFields)>());
  module.def("scheduler_metadata", &scheduler_metadata, arg("batch_size"), arg("max_seqlen_q"),
             arg("num_heads_q"), arg("num_heads_kv"), arg("headdim"), arg("headdim_v"),
             object("cache_seqlens"), object("cu_seqlens_q"), arg("total_q"), arg("total_q_is_bound"),
             object("cu_seqlens_k_new"), object("cache_leftpad"), arg("max_seqlen_k_new"), arg("causal"),
             object("window_size"), arg("attention_chunk"), arg("num_splits"), arg("kv_dtype"));
}

}  // namespace attend::python
