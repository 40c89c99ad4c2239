#include <iterator>

#include "attend/base/error.h"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/sm90/attention.h"
#include "attend_generated/sm90_instances.h"

namespace attend::kernels::cuda::sm90 {

static_assert(kInstancesAreSampled ||
                  std::size(kSingleRequestDecodeInstances) == 2 * kSingleRequestDecodeDims.size(),
              "instances for bf16 and f16");

void single_request_decode(const AttentionParams& params, HeadDims dims, Stream& stream) {
  for (const SingleRequestDecodeInstance& instance : kSingleRequestDecodeInstances)
    if (instance.element == params.kv_element && instance.head_dim == dims.v)
      return instance.launch(params, stream.handle);
  fail(ErrorCode::kInternal, "attention: no instance of single-request decode with head dim ", dims.v);
}

}  // namespace attend::kernels::cuda::sm90
