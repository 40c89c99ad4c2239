#include "attend/cli/options/bench_options.h"

#include "attend/base/error.h"
#include "attend/bench/model/model_shapes.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/options/flags.h"
#include "attend/model/weights/quantized/quantized_tensor.h"

namespace attend::cli {

void add_model_choice(CLI::App& app, ModelChoice& choice) {
  set_group(app, "Random weights");
  add_text(app, "--shape", choice.shape,
           "model to use instead of --model-path, with random weights: " + bench::shape_names());
  add_text(
      app, "--weight-format", choice.weight_format,
      "weight format of linear layers, with random weights: fp8, fp8-block, int8, int4, int4-g32 or mxfp4");
  add_text(app, "--speculative-draft-shape", choice.draft_shape,
           "STANDALONE: draft model with random weights, as --shape; draft heads of a --shape have their "
           "target's");
  add_number(app, "--num-layers", choice.num_layers,
             "number of leading layers to keep; requires random weights",
             Range<int>{.lowest = 1, .highest = 1 << 16});
}

namespace {

// Sets the draft model of a model with random weights, unless it is in files.
void set_draft_model(const ModelChoice& choice, EngineConfig& engine) {
  const SpeculativeOptions& speculation = engine.speculation;
  const bool has_model = speculation.algorithm && has_draft_model(*speculation.algorithm);
  const bool has_head = has_model && has_draft_head(*speculation.algorithm);
  if (!choice.draft_shape.empty()) {
    require(has_model && !has_head && speculation.draft_model_path.empty(), "--speculative-draft-shape ",
            choice.draft_shape,
            ": only with --speculative-algorithm STANDALONE, without --speculative-draft-model-path");
    engine.draft_model = bench::shape_model(choice.draft_shape);
    return;
  }
  // A layer for multi-token prediction is in the target's files.
  const bool in_files = choice.shape.empty() && speculation.algorithm != SpeculativeAlgorithm::kEagle3;
  if (!has_head || in_files || !speculation.draft_model_path.empty()) return;
  if (engine.load_format != LoadFormat::kDummy) return;
  if (!engine.model) engine.model = read_config(engine.model_path);
  engine.draft_model = bench::shape_draft(*speculation.algorithm, *engine.model, choice.shape);
}

}  // namespace

EngineConfig to_config(const CLI::App& app, const EngineOptions& options, const ModelChoice& choice) {
  require(options.model_path.empty() != choice.shape.empty(), "expected one of --model-path and --shape");
  EngineConfig engine = to_config(app, options);
  const bool keeps_some_layers = app.count("--num-layers") > 0;
  require(!keeps_some_layers || !choice.shape.empty() || engine.load_format == LoadFormat::kDummy,
          "--num-layers: only with --load-format dummy");
  if (!choice.shape.empty()) {
    engine.model = bench::shape_model(choice.shape);
    engine.load_format = LoadFormat::kDummy;
  }
  if (!choice.weight_format.empty()) {
    require(engine.load_format == LoadFormat::kDummy, "--weight-format: only with --load-format dummy");
    if (!engine.model) engine.model = read_config(engine.model_path);
    engine.model->quantization = dummy_quantization(choice.weight_format);
  }
  if (keeps_some_layers) {
    if (!engine.model) engine.model = read_config(engine.model_path);
    // Layers of a model may differ, so the first ones are kept. A deeper model repeats the last layer.
    engine.model->layers.resize(static_cast<size_t>(choice.num_layers), engine.model->layers.back());
  }
  set_draft_model(choice, engine);
  return engine;
}

}  // namespace attend::cli
