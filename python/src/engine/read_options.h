// Converts options of attend.Engine from Python to the engine's structs.
#pragma once

#include <nanobind/nanobind.h>

#include "attend/engine/embedder.h"
#include "attend/engine/engine_config.h"
#include "attend/engine/generation_request.h"

namespace attend::python {

namespace nb = nanobind;

// Reads a dict of the given options, named as in EngineConfig; "threads" sets the number of threads of this
// process. Throws Error(kInvalidArgument) that names the option, its value and what is accepted, also for an
// unknown name; Error(kUnsupported) for a GPU option if the device is a CPU.
EngineConfig engine_config(nb::dict options);

// Like engine_config(), for a model that returns vectors or scores; also "max_input_tokens", "pooling",
// "normalize" and "is_reranker". Throws Error(kUnsupported) for options that concern generation only.
EmbedderConfig embedder_config(nb::dict options);

// Like engine_config(), with the names of SamplingParams.
SamplingParams sampling_params(nb::dict options);

}  // namespace attend::python
