#include "attend/cli/engine_options.h"

#include <thread>

#include "attend/base/error.h"
#include "attend/base/parallel.h"

namespace attend::cli {
namespace {

// More than any machine has; a thread team that the system can not start ends the process.
constexpr int kMaxThreads = 1024;

Device parse_device(const std::string& name) {
  if (name == "auto" || name == "cpu") return {DeviceType::kCpu, 0};
  if (name == "cuda" || name.starts_with("cuda:"))
    fail(ErrorCode::kUnsupported, "--device ", name, ": this build has no CUDA; cpu works everywhere");
  fail(ErrorCode::kInvalidArgument, "--device ", name, ": expected auto, cpu or cuda");
}

LoadFormat parse_load_format(const std::string& name) {
  if (name == "auto" || name == "safetensors") return LoadFormat::kAuto;
  if (name == "dummy") return LoadFormat::kDummy;
  fail(ErrorCode::kInvalidArgument, "--load-format ", name, ": expected auto, safetensors or dummy");
}

// Given on the command line: then it must be at least 1; 0 stands for "choose" only while nobody names it.
void require_positive(const CLI::App& app, const std::string& flag, int64_t value) {
  require(app.count(flag) == 0 || value >= 1, flag, " ", value, ": at least 1");
}

}  // namespace

void add_engine_options(CLI::App& app, EngineOptions& options, bool model_required) {
  auto* model = app.add_option("--model-path,--model", options.model_path, "Hugging Face model directory");
  if (model_required) model->required();
  app.add_option("--load-format", options.load_format, "auto, safetensors, or dummy (random weights)");
  app.add_option("--device", options.device, "auto, cpu or cuda");
  app.add_option("--attention-backend", options.attention_backend,
                 "attention backend of both phases (see: attend backends)");
  app.add_option("--prefill-attention-backend", options.prefill_attention_backend,
                 "backend of prompts; wins over --attention-backend");
  app.add_option("--decode-attention-backend", options.decode_attention_backend,
                 "backend of decode steps; wins over --attention-backend");
  app.add_option("--page-size,--block-size", options.page_size, "tokens of a KV page: 1, 2, 4, ... 256");
  app.add_option("--kv-cache-dtype", options.kv_cache_dtype,
                 "auto (the weights' dtype), float32, float16, bfloat16, fp8_e4m3 or fp8_e5m2");
  app.add_option("--context-length,--max-model-len", options.context_length,
                 "tokens of a request, prompt and completion");
  app.add_option("--max-running-requests,--max-num-seqs", options.max_running_requests,
                 "requests in a step at most");
  app.add_option("--max-total-tokens", options.max_total_tokens, "tokens that the KV pool holds");
  app.add_option("--chunked-prefill-size", options.chunked_prefill_size,
                 "new tokens in a step at most; longer prompts are computed in chunks");
  app.add_option("--threads", options.threads,
                 "CPU threads; default: one per core that this process may use");
  app.add_option("--random-seed", options.random_seed, "seed of requests that bring none");
}

void set_threads(const CLI::App& app, int threads) {
  require_positive(app, "--threads", threads);
  require(threads <= kMaxThreads, "--threads ", threads, ": at most ", kMaxThreads);
  if (threads > 0) set_num_threads(threads);
}

EngineConfig to_config(const CLI::App& app, const EngineOptions& options) {
  require_positive(app, "--context-length", options.context_length);
  require_positive(app, "--max-running-requests", options.max_running_requests);
  require_positive(app, "--max-total-tokens", options.max_total_tokens);
  require_positive(app, "--chunked-prefill-size", options.chunked_prefill_size);
  set_threads(app, options.threads);

  EngineConfig config;
  config.model_path = options.model_path;
  config.load_format = parse_load_format(options.load_format);
  config.device = parse_device(options.device);
  config.wishes.attention_backend = options.attention_backend;
  config.wishes.prefill_backend = options.prefill_attention_backend;
  config.wishes.decode_backend = options.decode_attention_backend;
  if (app.count("--page-size") > 0) config.wishes.page_size = options.page_size;
  if (options.kv_cache_dtype != "auto") config.kv_cache_dtype = parse_dtype(options.kv_cache_dtype);
  config.context_length = options.context_length;
  config.max_running_requests = options.max_running_requests;
  config.max_total_tokens = options.max_total_tokens;
  config.chunked_prefill_size = options.chunked_prefill_size;
  config.random_seed = options.random_seed;
  return config;
}

}  // namespace attend::cli
