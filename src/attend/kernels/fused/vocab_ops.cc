#include "attend/kernels/fused/vocab_ops.h"

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/decode_blocks.h"
#include "attend/kernels/fused/operations.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/kernels/norm_rope/elementwise.h"

namespace attend::kernels {
namespace {

// embed() for a table of blocks in host memory.
void embed_blocks(const EmbedArgs& args, const OpContext& context) {
  if (context.stream.device.type != DeviceType::kCpu)
    fail(ErrorCode::kUnsupported, "table ", args.table, ": embed() on ", context.stream.device,
         " supports plain tables; cpu supports blocks");
  require_weight_on(context.stream, "table", args.table);
  const auto num_tokens = static_cast<int64_t>(args.ids.size());
  const int64_t vocab_size = args.table.out_features(), hidden = args.table.in_features();
  require_shape("out", args.out, {num_tokens, hidden});
  require_activation_on(context.stream, "out", args.out);
  for (const int32_t id : args.ids)
    require(id >= 0 && id < vocab_size, "ids: ", id, ": expected 0 to ", vocab_size - 1);
  parallel_for_rows(num_tokens, hidden, [&](int64_t token) {
    float* const row = args.out[token].as<float>();
    const TensorView blocks = args.table.data[args.ids[static_cast<size_t>(token)]];
    decode_blocks(args.table.block_format, blocks.as<const uint8_t>(), hidden, row);
    if (args.scale != 1.0f)
      for (int64_t i = 0; i < hidden; ++i) row[i] *= args.scale;
  });
}

}  // namespace

void embed(const EmbedArgs& args, const OpContext& context) {
  if (args.table.format == WeightFormat::kBlocks) return embed_blocks(args, context);
  embedding(args.ids, args.table.data, args.out, context.stream, args.scale);
}

void head(Residual& residual, const HeadArgs& args, const OpContext& context) {
  const bool divided = context.ranks != nullptr && !args.bounds.empty();
  TensorView own = args.out;
  if (divided) {
    const auto rank = static_cast<size_t>(context.ranks->rank());
    own = args.out.slice(1, args.bounds[rank], args.bounds[rank + 1]);
  }
  norm_linear(residual, {.norm = args.norm, .linear = {&args.linear, 1}, .out = own, .rows = args.rows},
              context);
  if (divided) context.ranks->all_gather(args.out, {.axis = 1, .bounds = args.bounds}, context.stream);
  if (args.logit_cap > 0.0f) soft_cap(args.out, args.logit_cap, context.stream);
}

}  // namespace attend::kernels
