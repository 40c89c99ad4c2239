// What attend.Engine is told in Python, as the engine's structs.
#pragma once

#include <nanobind/nanobind.h>

#include "attend/engine/engine_config.h"
#include "attend/engine/generation_request.h"

namespace attend::python {

namespace nb = nanobind;

// From a dict of what was given; names are those of EngineConfig, "threads" sets the number of threads of
// this process. Throws Error(kInvalidArgument) naming the option, its value and what it takes, and for an
// unknown name; Error(kUnsupported) for an option of GPUs where the device is a CPU.
EngineConfig engine_config(nb::dict options);

// Likewise; names are those of SamplingParams.
SamplingParams sampling_params(nb::dict options);

}  // namespace attend::python
