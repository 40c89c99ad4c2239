// Checks the tensors of files before they are loaded.
#pragma once

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/model_placement.h"
#include "attend/model/config/model_spec.h"

namespace attend {

// Throws what load_model() throws before it reads tensors: for names, shapes and dtypes of the tensors.
void check_model_tensors(const CheckpointTensors& files, const ModelSpec& spec,
                         const ModelPlacement& placement);

}  // namespace attend
