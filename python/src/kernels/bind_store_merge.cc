// Bindings of store_kv, store_mla and merge, with the kernels' arguments.
#include <algorithm>
#include <array>
#include <span>
#include <tuple>

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/kv_store/store.h"
#include "module.h"
#include "tensors/arguments.h"
#include "tensors/result_tensor.h"

namespace attend::python {
namespace {

// Checks slots on the CPU, since kernels do not.
View<const int32_t> parse_slots(const TensorArgument& slots, int64_t num_tokens, const TensorView& cache) {
  const View<const int32_t> entries = int32_vector("slots", slots, cache.device);
  require(entries.size() == static_cast<size_t>(num_tokens), "slots of ", entries.size(),
          " entries: expected ", num_tokens, ", one per token");
  if (cache.device.type == DeviceType::kCpu)
    for (int32_t slot : entries)
      require(slot >= -1 && slot < cache.shape[0] * cache.shape[1], "slot ", slot, ": the cache has ",
              cache.shape[0] * cache.shape[1]);
  return entries;
}

void store_kv(nb::handle k_object, nb::handle v_object, nb::handle k_cache_object, nb::handle v_cache_object,
              nb::handle slots_object, float k_scale, float v_scale) {
  const TensorArgument k("k", k_object, Accepts::kActivations), v("v", v_object, Accepts::kActivations),
      slots("slots", slots_object, Accepts::kInt32);
  const TensorArgument k_cache("k_cache", k_cache_object, Accepts::kKeys, Access::kWrite),
      v_cache("v_cache", v_cache_object, Accepts::kKeys, Access::kWrite);
  require_given("k", k);
  require_given("v", v);
  require_given("k_cache", k_cache);
  require_given("v_cache", v_cache);
  require_given("slots", slots);
  require(k_cache->rank == 4, "k_cache ", *k_cache,
          ": expected [num_pages, page_size, num_kv_heads, head_dim]");
  for (const TensorView& view : {*k, *v, *v_cache})
    require_same_device("k, v, v_cache", view, k_cache->device);
  const kernels::StoreKvArgs args{.k = *k,
                                  .v = *v,
                                  .to = {.k = *k_cache,
                                         .v = *v_cache,
                                         .slots = parse_slots(slots, k->shape[0], *k_cache),
                                         .k_scale = positive("k_scale", k_scale),
                                         .v_scale = positive("v_scale", v_scale)}};
  run_on_stream(k_cache_object, k_cache->device, [&](Stream& stream) { kernels::store_kv(args, stream); });
}

void store_mla(nb::handle latent_object, nb::handle rope_object, nb::handle cache_object,
               nb::handle slots_object, float scale) {
  const TensorArgument latent("latent", latent_object, Accepts::kActivations),
      rope("rope", rope_object, Accepts::kActivations), slots("slots", slots_object, Accepts::kInt32);
  const TensorArgument cache("cache", cache_object, Accepts::kKeys, Access::kWrite);
  require_given("latent", latent);
  require_given("rope", rope);
  require_given("cache", cache);
  require_given("slots", slots);
  require(cache->rank == 3, "cache ", *cache, ": expected [num_pages, page_size, kv_lora_rank + rope_dim]");
  for (const TensorView& view : {*latent, *rope}) require_same_device("latent, rope", view, cache->device);
  const kernels::StoreMlaArgs args{.latent = *latent,
                                   .rope = *rope,
                                   .to = {.k = *cache,
                                          .slots = parse_slots(slots, latent->shape[0], *cache),
                                          .k_scale = positive("scale", scale)}};
  run_on_stream(cache_object, cache->device, [&](Stream& stream) { kernels::store_mla(args, stream); });
}

nb::tuple merge(nb::handle out_a_object, nb::handle lse_a_object, nb::handle out_b_object,
                nb::handle lse_b_object, nb::handle out_object, nb::handle lse_object) {
  const TensorArgument out_a("out_a", out_a_object, Accepts::kActivations),
      lse_a("lse_a", lse_a_object, Accepts::kFloat32), out_b("out_b", out_b_object, Accepts::kActivations),
      lse_b("lse_b", lse_b_object, Accepts::kFloat32);
  require_given("out_a", out_a);
  require_given("lse_a", lse_a);
  require_given("out_b", out_b);
  require_given("lse_b", lse_b);
  require(out_a->rank == 3, "out_a ", *out_a, ": expected [num_tokens, num_q_heads, head_dim]");
  for (const TensorView& view : {*lse_a, *out_b, *lse_b})
    require_same_device("out_a, lse_a, out_b, lse_b", view, out_a->device);
  const TensorArgument given_out("out", out_object, Accepts::kActivations, Access::kWrite),
      given_lse("lse", lse_object, Accepts::kFloat32, Access::kWrite);
  const std::array<int64_t, 3> shape{out_a->shape[0], out_a->shape[1], out_a->shape[2]};
  ResultTensor out, lse;
  if (!given_out.given()) out = ResultTensor::like(out_a_object, *out_a, shape);
  if (!given_lse.given()) lse = ResultTensor::float32_like(out_a_object, *out_a, std::span(shape).first(2));
  const kernels::MergeArgs args{.out_a = *out_a,
                                .out_b = *out_b,
                                .lse_a = *lse_a,
                                .lse_b = *lse_b,
                                .out = given_out.given() ? *given_out : out.view(),
                                .lse = given_lse.given() ? *given_lse : lse.view()};
  require_same_device("out", args.out, out_a->device);
  require_same_device("lse", args.lse, out_a->device);
  run_on_stream(out_a_object, out_a->device, [&](Stream& stream) { kernels::merge(args, stream); });
  return nb::make_tuple(given_out.given() ? nb::borrow(out_object) : out.take(),
                        given_lse.given() ? nb::borrow(lse_object) : lse.take());
}

// Removes dimension `dim`, which has size 1.
TensorView without(const TensorView& view, size_t dim) {
  TensorView rest = view;
  --rest.rank;
  for (size_t d = dim; d < static_cast<size_t>(rest.rank); ++d) {
    rest.shape[d] = view.shape[d + 1];
    rest.strides[d] = view.strides[d + 1];
  }
  return rest;
}

// Views [num_splits, batch, seqlen, num_heads, ...], or `out` [batch, seqlen, num_heads, ...] with the batch
// as dimension `dim`, as tokens. All requests are merged if they are contiguous in memory.
struct BatchTokens {
  TensorView view;
  size_t dim;
  bool follow() const {
    return view.shape[dim] <= 1 || view.shape[dim + 1] <= 1 ||
           view.strides[dim] == view.shape[dim + 1] * view.strides[dim + 1];
  }
  TensorView all() const {
    TensorView tokens = without(view, dim);
    tokens.shape[dim] = view.shape[dim] * view.shape[dim + 1];
    if (view.shape[dim + 1] <= 1) tokens.strides[dim] = view.strides[dim];
    return tokens;
  }
  TensorView request_view(int64_t r) const {
    return without(view.slice(static_cast<int>(dim), r, r + 1), dim);
  }
};

// Returns an array like `like`, with another dtype if given.
nb::object make_empty(nb::handle like, std::span<const int64_t> shape, nb::handle dtype) {
  nb::list extents;
  for (const int64_t extent : shape) extents.append(extent);
  if (nb::hasattr(like, "new_empty")) return like.attr("new_empty")(extents, nb::arg("dtype") = dtype);
  return nb::module_::import_("numpy").attr("empty")(extents, nb::arg("dtype") = dtype);
}

// Merges with or without a batch dimension. Requests that are not contiguous need one launch each.
void merge_requests(const TensorView& partial_out, const TensorView& partial_lse, const TensorView& out,
                    const TensorView& lse, Stream& stream) {
  if (partial_out.rank == 4)
    return kernels::merge_splits(
        {.partial_out = partial_out, .partial_lse = partial_lse, .out = out, .lse = lse}, stream);
  const BatchTokens splits{partial_out, 1}, lse_splits{partial_lse, 1}, merged{out, 0}, merged_lse{lse, 0};
  if (splits.follow() && lse_splits.follow() && merged.follow())
    return kernels::merge_splits({.partial_out = splits.all(),
                                  .partial_lse = lse_splits.all(),
                                  .out = merged.all(),
                                  .lse = merged_lse.all()},
                                 stream);
  for (int64_t r = 0; r < out.shape[0]; ++r)
    kernels::merge_splits({.partial_out = splits.request_view(r),
                           .partial_lse = lse_splits.request_view(r),
                           .out = merged.request_view(r),
                           .lse = merged_lse.request_view(r)},
                          stream);
}

nb::tuple merge_splits(nb::handle partial_out_object, nb::handle partial_lse_object, nb::handle out_object,
                       nb::handle out_dtype) {
  const TensorArgument partial_out("out_partial", partial_out_object, Accepts::kFloat32),
      partial_lse("lse_partial", partial_lse_object, Accepts::kFloat32);
  require_given("out_partial", partial_out);
  require_given("lse_partial", partial_lse);
  require_same_device("lse_partial", *partial_lse, partial_out->device);
  for (const auto& [name, view, rank] :
       {std::tuple("out_partial", *partial_out, 4), std::tuple("lse_partial", *partial_lse, 3)})
    require(view.rank == rank || view.rank == rank + 1, name, " ", view, ": expected ", rank,
            " dimensions, or ", rank + 1, " with a batch");
  require(partial_lse->rank == partial_out->rank - 1 &&
              std::equal(partial_lse->shape.begin(), partial_lse->shape.begin() + partial_lse->rank,
                         partial_out->shape.begin()),
          "lse_partial ", *partial_lse, ": expected the shape of out_partial ", *partial_out,
          " without its last dimension");
  const std::span<const int64_t> shape(partial_out->shape.data() + 1,
                                       static_cast<size_t>(partial_out->rank - 1));
  nb::object given_out = nb::borrow(out_object);
  if (out_object.is_none() && !out_dtype.is_none())
    given_out = make_empty(partial_out_object, shape, out_dtype);
  const TensorArgument given("out", given_out, Accepts::kActivations, Access::kWrite);
  ResultTensor made;
  if (!given.given()) made = ResultTensor::float32_like(partial_out_object, *partial_out, shape);
  const TensorView& out = given.given() ? *given : made.view();
  require_same_device("out", out, partial_out->device);
  ResultTensor lse =
      ResultTensor::float32_like(partial_out_object, *partial_out, shape.first(shape.size() - 1));
  require(out.rank == partial_out->rank - 1 && std::equal(shape.begin(), shape.end(), out.shape.begin()),
          "out ", out, ": expected the shape of out_partial ", *partial_out, " without its first dimension");
  if (partial_out->num_elements() > 0)
    run_on_stream(partial_out_object, partial_out->device, [&](Stream& stream) {
      merge_requests(*partial_out, *partial_lse, out, lse.view(), stream);
    });
  return nb::make_tuple(given.given() ? std::move(given_out) : made.take(), lse.take());
}

constexpr const char* kStoreKvDoc =
    R"(Stores new K/V at their token slots: k / k_scale and v / v_scale, rounded to the cache's dtype.

k, v              [num_tokens, num_kv_heads, head_dim]
k_cache, v_cache  [num_pages, page_size, num_kv_heads, head_dim], changed in place
slots             int32 [num_tokens]: page id * page_size + offset; -1: not stored)";

constexpr const char* kStoreMlaDoc =
    R"(Stores latent rows at their token slots: [latent, rope] / scale, rounded to the cache's dtype.

latent [num_tokens, kv_lora_rank], rope [num_tokens, rope_dim]
cache  [num_pages, page_size, kv_lora_rank + rope_dim], changed in place
slots  int32 [num_tokens]; -1: not stored)";

constexpr const char* kMergeDoc = R"(Merges attention over two parts of the keys by their LSE: (out, lse).

out_a, out_b [num_tokens, num_q_heads, head_dim], lse_a, lse_b float32 [num_tokens, num_q_heads], natural logarithm;
-inf (or +inf, as in other libraries) for a part without keys, whose output is not read. If given, out and lse are
written instead of new tensors; they may be those of part a.)";

}  // namespace

void bind_store_merge(Module& module) {
  module.def("store_kv", &store_kv, kStoreKvDoc, nb::arg("k").none(), nb::arg("v").none(),
             nb::arg("k_cache").none(), nb::arg("v_cache").none(), nb::arg("slots").none(),
             nb::arg("k_scale") = 1.0f, nb::arg("v_scale") = 1.0f);
  module.def("store_mla", &store_mla, kStoreMlaDoc, nb::arg("latent").none(), nb::arg("rope").none(),
             nb::arg("cache").none(), nb::arg("slots").none(), nb::arg("scale") = 1.0f);
  module.def("merge", &merge, kMergeDoc, nb::arg("out_a").none(), nb::arg("lse_a").none(),
             nb::arg("out_b").none(), nb::arg("lse_b").none(), nb::arg("out").none() = nb::none(),
             nb::arg("lse").none() = nb::none());
  module.def("merge_splits", &merge_splits, nb::arg("out_partial").none(), nb::arg("lse_partial").none(),
             nb::arg("out").none(), nb::arg("out_dtype").none());
}

}  // namespace attend::python
