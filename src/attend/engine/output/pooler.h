// Pooler: computes the vector of an input from its hidden states, on the host.
#pragma once

#include <memory>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/engine/output/pooling.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend {

class Pooler {
 public:
  // Maps the files of the dense layers. Throws Error(kCorruptFile) or Error(kUnsupported) naming file and
  // tensor.
  explicit Pooler(const PoolingSpec& spec);

  // `hidden_states`: [num_tokens, hidden_size] of one input, float32 or a 16-bit dtype, on the device of
  // `stream`, which must be synchronized.
  std::vector<float> pool(const TensorView& hidden_states, Stream& stream) const;

 private:
  // Dense layer and the mapped file of its tensors.
  struct DenseLayer {
    std::shared_ptr<const CheckpointTensors> file;
    Tensor weight = {}, bias = {};
    bool tanh = false;
  };
  static DenseLayer load_dense(const EmbeddingDense& dense);

  Pooling pooling_;
  bool normalize_;
  std::vector<DenseLayer> dense_;
};

}  // namespace attend
