// ModelPlacement: the device of a model, and options of its computation.
#pragma once

#include "attend/tensor/communicator.h"
#include "attend/tensor/device.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

// Device of a model's weights, and options of its computation.
struct ModelPlacement {
  Device device = {};
  // Dtype of activations and, on a GPU, of weights: float32, float16 or bfloat16. On the CPU, activations are
  // float32 and weights keep their stored dtype.
  DType dtype = DType::kF32;
  // A token's bits depend only on its own sequence: dense layers use one algorithm for all numbers of tokens.
  bool batch_invariant = false;
  // Dense layers may round their inputs: on the CPU to bfloat16 or int8, on a GPU to fp8
  // (kernels::LinearArgs::rounds_x).
  bool rounds_x = false;
  // A draft reads the layer for multi-token prediction of the files.
  bool has_prediction = false;
  // One of several ranks that divide the model (rank_spec()), and its communicator with the others. Required
  // for forward() with more than one rank. It must outlive the model.
  int rank = 0, num_ranks = 1;
  Communicator* ranks = nullptr;
};

}  // namespace attend
#pragma GCC visibility pop
