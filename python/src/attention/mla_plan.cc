#include "attention/mla_plan.h"

#include "attend/tensor/cuda.h"

namespace attend::python {

void MlaPlan::run(AttentionCall& call, Workspaces& workspaces, Stream stream) {
  const cuda::DeviceScope scope(stream.device);
  Workspace& workspace = workspaces.find_for(call, stream);
  Made wanted{.workspace = &workspace,
              .num_plans = workspace.num_plans(),
              .recording = cuda::capture_id(stream),
              .seqlen_kv = call.seqlen_kv.data(),
              .num_reqs = call.source.num_reqs,
              .max_seqlen_q = call.max_seqlen_q,
              .attention_mask = call.attention_mask};
  if (made_ != wanted) {
    workspace.plan(call, stream);
    wanted.num_plans = workspace.num_plans();
    made_ = wanted;
  }
  workspace.attend(call, stream);
}

}  // namespace attend::python
