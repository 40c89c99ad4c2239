// attend bench: attention and models, each beside what the machine can do at most.

#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/bench/attention_bench.h"
#include "attend/bench/gpu_model_bench.h"
#include "attend/bench/model_bench.h"
#include "attend/bench/model_shapes.h"
#include "attend/cli/commands.h"
#include "attend/cli/engine_options.h"
#include "attend/cli/flags.h"
#include "attend/cli/progress_bar.h"

namespace attend::cli {
namespace {

struct BenchOptions {
  EngineOptions engine;
  std::string filter;
  std::string shape;
  std::vector<int> depths = bench::ModelBenchOptions().depths;
  std::vector<int> batch_sizes = bench::GpuModelBenchOptions().batch_sizes;
  int num_layers = 0;  // unless it is given: as the config says
  std::string json;
};

void show(const bench::Report& report, const std::string& json) {
  print(report);
  if (!json.empty()) write_json(report, json);
}

int run_attention(const CLI::App& app, const BenchOptions& options) {
  require(options.engine.device == "auto" || options.engine.device == "cpu", "--device ",
          options.engine.device,
          ": expected auto or cpu; attention on a GPU is timed by cuda_attention_bench, "
          "which -DATTEND_BENCHMARKS=ON builds");
  set_threads(app, options.engine.threads);
  show(bench::bench_attention({.filter = options.filter}), options.json);
  return 0;
}

std::string read_config_file(const std::string& model_path) {
  const std::string path = model_path + "/config.json";
  std::ifstream file(path);
  require(file.good(), path, ": can not be read");
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

// Flags that the bench of the other kind of device takes.
void refuse_flag(const CLI::App& app, const char* flag, std::string_view for_whom, Device device) {
  if (given(app, flag))
    fail(ErrorCode::kUnsupported, flag, ": for ", for_whom, " alone; the device is ", device);
}

bench::Report bench_model(const CLI::App& app, const BenchOptions& options, const EngineConfig& engine) {
  EngineBars bars;
  if (engine.device.type == DeviceType::kCuda) {
    refuse_flag(app, "--depth", "CPUs", engine.device);
    return bench::bench_model_on_gpu(
        {.engine = engine, .batch_sizes = options.batch_sizes, .progress = bars.progress()});
  }
  refuse_flag(app, "--batch-sizes", "GPUs", engine.device);
  return bench::bench_model({.engine = engine, .depths = options.depths, .progress = bars.progress()});
}

int run_model(const CLI::App& app, const BenchOptions& options) {
  require(options.engine.model_path.empty() != options.shape.empty(), "give one of --model-path and --shape");
  EngineConfig engine = to_config(app, options.engine);
  std::optional<bench::ConfigDirectory> made;
  const bool keeps_some_layers = app.count("--num-layers") > 0;
  if (!options.shape.empty() || keeps_some_layers) {
    require(!options.shape.empty() || engine.load_format == LoadFormat::kDummy,
            "--num-layers: only with --load-format dummy");
    std::string config = options.shape.empty() ? read_config_file(options.engine.model_path)
                                               : bench::shape_config(options.shape);
    if (keeps_some_layers) config = bench::with_num_layers(config, options.num_layers);
    made.emplace(config);
    engine.model_path = made->path();
    engine.load_format = LoadFormat::kDummy;
  }
  try {
    show(bench_model(app, options, engine), options.json);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    // The engine names flags to lower, which bench has not: it chooses those sizes itself.
    std::string what = error.what();
    what = what.substr(0, what.find("; lower --"));
    fail(ErrorCode::kOutOfMemory, what, "; less is needed with fewer layers (--num-layers",
         options.shape.empty() ? ", with --load-format dummy)" : ") or a smaller --shape");
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Command& selected) {
  CLI::App* group = app.add_subcommand("bench", "Time attention or a model beside the machine's limits");
  group->require_subcommand(1);
  const auto select = [&selected](CLI::App* command, std::shared_ptr<BenchOptions> options, auto run) {
    add_text(*command, "--json", options->json, "write the figures to this file");
    command->callback([=, &selected] { selected = [=] { return run(*command, *options); }; });
  };

  auto attention = std::make_shared<BenchOptions>();
  CLI::App* command =
      group->add_subcommand("attention", "Attention alone on the CPU, with 1 and with all threads");
  add_text(*command, "--device", attention->engine.device,
           "auto or cpu; on a GPU cuda_attention_bench times attention (cmake -DATTEND_BENCHMARKS=ON)");
  add_number(*command, "--threads", attention->engine.threads, "CPU threads at most");
  add_text(*command, "--case", attention->filter, "only cases that have this in their name");
  select(command, attention, run_attention);

  auto model = std::make_shared<BenchOptions>();
  command =
      group->add_subcommand("model",
                            "On a CPU one request: pp512, a prompt of 512 tokens, and tg128, 128 generated "
                            "ones (llama-bench's names). "
                            "On a GPU decode steps of batches with 1k of context, and a prompt of 8k tokens");
  // Without sizes: a bench chooses them by what it times.
  add_choice_options(*command, model->engine, /*model_required=*/false);
  add_run_options(*command, model->engine);
  add_text(*command, "--shape", model->shape,
           "instead of --model-path, with random weights: llama-3.1-8b, llama-3.2-1b, qwen3-0.6b");
  add_number(*command, "--num-layers", model->num_layers, "layers to keep; needs random weights");
  add_numbers(*command, "--depth", model->depths, "a multiple of 512 within the model's positions",
              "CPUs: tokens of context before the timed ones, such as 0,4096,16384; default: 0");
  add_numbers(*command, "--batch-sizes", model->batch_sizes, "1 to what the model's positions hold",
              "GPUs: requests of the timed decode steps; default: 1,8,32,128,256");
  select(command, model, run_model);
}

}  // namespace attend::cli
