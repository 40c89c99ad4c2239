// attend bench: attention and models, each beside what the machine can do at most.

#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/bench/attention_bench.h"
#include "attend/bench/model_bench.h"
#include "attend/cli/commands.h"
#include "attend/cli/engine_options.h"
#include "attend/cli/flags.h"

namespace attend::cli {
namespace {

struct BenchOptions {
  EngineOptions engine;
  std::string filter;
  std::string shape;
  std::vector<int> depths = {0};
  int num_layers = 0;  // 0: as the config says
  std::string json;
};

void show(const bench::Report& report, const std::string& json) {
  print(report);
  if (!json.empty()) write_json(report, json);
}

int run_attention(const CLI::App& app, const BenchOptions& options) {
  require(options.engine.device == "auto" || options.engine.device == "cpu", "--device ",
          options.engine.device, ": expected auto or cpu");
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

int run_model(const CLI::App& app, const BenchOptions& options) {
  require(options.engine.model_path.empty() != options.shape.empty(), "give one of --model-path and --shape");
  bench::ModelBenchOptions bench{.engine = to_config(app, options.engine), .depths = options.depths};
  if (bench.engine.device.type != DeviceType::kCpu)
    fail(ErrorCode::kUnsupported, "--device ", bench.engine.device,
         ": the limits of attend bench are a CPU's; decode steps on GPUs are timed by cuda_decode_bench "
         "(build "
         "with -DATTEND_BENCHMARKS=ON)");
  std::optional<bench::ConfigDirectory> made;
  if (!options.shape.empty() || options.num_layers > 0) {
    require(!options.shape.empty() || bench.engine.load_format == LoadFormat::kDummy,
            "--num-layers: only with --load-format dummy");
    std::string config = options.shape.empty() ? read_config_file(options.engine.model_path)
                                               : bench::shape_config(options.shape);
    if (options.num_layers > 0) config = bench::with_num_layers(config, options.num_layers);
    made.emplace(config);
    bench.engine.model_path = made->path();
    bench.engine.load_format = LoadFormat::kDummy;
  }
  show(bench_model(bench), options.json);
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
  CLI::App* command = group->add_subcommand("attention", "Attention alone, with 1 and with all threads");
  add_text(*command, "--device", attention->engine.device, "auto or cpu");
  add_number(*command, "--threads", attention->engine.threads, "CPU threads at most");
  add_text(*command, "--case", attention->filter, "only cases that have this in their name");
  select(command, attention, run_attention);

  auto model = std::make_shared<BenchOptions>();
  command = group->add_subcommand(
      "model",
      "One request: pp512, a prompt of 512 tokens, and tg128, 128 generated ones (llama-bench's names)");
  model->engine.device = "cpu";
  add_engine_options(*command, model->engine, /*model_required=*/false);
  add_text(*command, "--shape", model->shape,
           "instead of --model-path, with random weights: llama-3.1-8b, llama-3.2-1b, qwen3-0.6b");
  add_number(*command, "--num-layers", model->num_layers, "layers to keep; needs random weights");
  add_numbers(*command, "--depth", model->depths,
              "tokens of context before the timed ones, such as 0,4096,16384; default: 0")
      ->delimiter(',');
  select(command, model, run_model);
}

}  // namespace attend::cli
