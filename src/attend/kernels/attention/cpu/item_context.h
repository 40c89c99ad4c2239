// ItemContext: a work item for the loops over its tiles. Products: the class that multiplies.
#pragma once

#include "attend/kernels/attention/cpu/attention_problem.h"
#include "attend/kernels/attention/cpu/tile_rows.h"
#include "attend/kernels/attention/cpu/tile_scratch.h"

namespace attend::kernels::cpu {
namespace {

// A row is a new token and one query head of the KV head's group: row = token * group + head in group.
//
// Rows are multiplied with tiles of keys by a class Products, which is constructed from an ItemContext
// (vector_products.h, amx_products.h):
//   Products::Simd, Products::kPVecs      vectors of P per call of store_p
//   pack_queries()               called once, before the other functions
//   multiply_keys(tile, next, row_begin, row_end)
//                                scores[row, key] = q.k for rows of the item; undefined for absent keys
//   store_p(row, key, p)         stores P of consecutive keys of a row
//   add_values(tile, next, row_begin, row_end)
//                                acc[row] = row_rescale[row] * acc[row] + sum over keys of p * v
//   restore_columns(row)         permutes the columns of a row of acc to their natural order
// `next` is the following tile: a class may prefetch its rows while it processes this one.
struct ItemContext {
  const AttentionProblem& problem;
  const WorkItem& item;
  const int kv_head;
  TileScratch& scratch;
  const int group, num_tokens, num_rows;
  const int stride_qk, stride_v;  // see TileShape
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
