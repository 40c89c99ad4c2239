#include "attend/kernels/fused/vocab_ops.h"

#include "attend/kernels/fused/operations.h"
#include "attend/kernels/norm_rope/elementwise.h"

namespace attend::kernels {

void embed(const EmbedArgs& args, const OpContext& context) {
  embedding(args.ids, args.table.data, args.out, context.stream, args.scale);
}

void head(Residual& residual, const HeadArgs& args, const OpContext& context) {
  norm_linear(residual, {.norm = args.norm, .linear = {&args.linear, 1}, .out = args.out, .rows = args.rows},
              context);
  if (args.logit_cap > 0.0f) soft_cap(args.out, args.logit_cap, context.stream);
}

}  // namespace attend::kernels
