// Reads an ImageProcessorSpec from the files next to config.json. Internal to the model floor.
#pragma once

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/vision_spec.h"

namespace attend {

// Changes the fields of `spec` that image_processor of processor_config.json has or, without it, those of
// preprocessor_config.json. Throws Error(kCorruptFile) for other sizes than those of the tower, and
// Error(kUnsupported) for another filter or without resizing and normalization.
void read_image_processor(const Checkpoint& checkpoint, ImageProcessorSpec& spec);

}  // namespace attend
