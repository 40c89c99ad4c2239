// ItemContext: a work item as the loops over its tiles see it, and what does their products.
#pragma once

#include "attend/kernels/attention/cpu/attention_problem.h"
#include "attend/kernels/attention/cpu/tile_rows.h"
#include "attend/kernels/attention/cpu/tile_scratch.h"

namespace attend::kernels::cpu {
namespace {

// A row is a new token and one query head of the KV head's group: row = token * group + head in group.
//
// What multiplies rows with tiles of keys is a class Products made from an ItemContext (vector_products.h,
// amx_products.h):
//   Products::Simd, Products::kPVecs      vectors of P that store_p takes at once
//   pack_queries()               once, before anything else
//   multiply_keys(tile, next, row_begin, row_end)
//                                scores[row, key] = q.k of rows of the item; what is absent gets anything
//   store_p(row, key, p)         P of consecutive keys of a row
//   add_values(tile, next, row_begin, row_end)
//                                acc[row] = row_rescale[row] * acc[row] + sum over keys of p * v
//   restore_columns(row)         puts the columns of a row of acc into their natural order
// `next` is the tile that comes after: a class may ask for its rows while it works on this one.
struct ItemContext {
  const AttentionProblem& problem;
  const WorkItem& item;
  const int kv_head;
  TileScratch& scratch;
  const int group, num_tokens, num_rows;
  const int stride_qk, stride_v;  // as TileShape
  const int64_t first_token;

  ItemContext(const AttentionProblem& of, const WorkItem& work_item, int head, TileScratch& memory)
      : problem(of),
        item(work_item),
        kv_head(head),
        scratch(memory),
        group(of.group()),
        num_tokens(work_item.q_end - work_item.q_begin),
        num_rows(num_tokens * group),
        stride_qk(row_stride(of.head_dim_qk())),
        stride_v(row_stride(of.v.dim)),
        first_token(of.batch.cu_seqlen_q[static_cast<size_t>(work_item.request)] + work_item.q_begin) {}
};

}  // namespace
}  // namespace attend::kernels::cpu
