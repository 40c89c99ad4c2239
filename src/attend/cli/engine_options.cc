#include "attend/cli/engine_options.h"

#include <charconv>
#include <thread>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/cli/flags.h"
#include "attend/tensor/cuda.h"

namespace attend::cli {
namespace {

Device parse_device(const std::string& name) {
  constexpr std::string_view kCuda = "cuda:";
  if (name == "auto") return {cuda::device_count() > 0 ? DeviceType::kCuda : DeviceType::kCpu, 0};
  if (name == "cpu") return {DeviceType::kCpu, 0};
  if (name == "cuda") return {DeviceType::kCuda, 0};
  int index = 0;
  const char* const end = name.data() + name.size();
  if (name.starts_with(kCuda))
    if (const auto [rest, error] = std::from_chars(name.data() + kCuda.size(), end, index);
        error == std::errc() && rest == end && index >= 0)
      return {DeviceType::kCuda, index};
  fail(ErrorCode::kInvalidArgument, "--device ", name, ": expected auto, cpu, cuda or cuda:N");
}

LoadFormat parse_load_format(const std::string& name) {
  if (name == "auto" || name == "safetensors") return LoadFormat::kAuto;
  if (name == "dummy") return LoadFormat::kDummy;
  fail(ErrorCode::kInvalidArgument, "--load-format ", name, ": expected auto, safetensors or dummy");
}

// Given on the command line: then it must be at least 1; 0 stands for "choose" only while nobody names it.
void require_positive(const CLI::App& app, const std::string& flag, int64_t value) {
  require(!given(app, flag) || value >= 1, flag, " ", value, ": at least 1");
}

// Flags that would change nothing on a CPU.
void refuse_gpu_flags(const CLI::App& app) {
  for (const char* flag :
       {"--mem-fraction-static", "--disable-cuda-graph", "--cuda-graph-bs", "--cuda-graph-max-bs"})
    if (given(app, flag)) fail(ErrorCode::kUnsupported, flag, ": for GPUs alone; the device is cpu");
}

}  // namespace

void add_choice_options(CLI::App& app, EngineOptions& options, bool model_required) {
  auto* model = add_text(app, "--model-path,--model", options.model_path, "Hugging Face model directory");
  if (model_required) model->required();
  add_text(app, "--device", options.device, "auto (a GPU when there is one), cpu, cuda or cuda:N");
  add_text(app, "--dtype", options.dtype,
           "of activations: auto (float32 on the CPU, the weights' dtype on a GPU), float32, and on GPUs "
           "float16 or bfloat16");
  add_text(app, "--attention-backend", options.attention_backend,
           "attention backend of both phases (see: attend backends)");
  add_text(app, "--prefill-attention-backend", options.prefill_attention_backend,
           "backend of prompts; wins over --attention-backend");
  add_text(app, "--decode-attention-backend", options.decode_attention_backend,
           "backend of decode steps; wins over --attention-backend");
  add_number(app, "--page-size,--block-size", options.page_size,
             "tokens of a KV page: 1, 2, 4, ... 256; default: what the backends prefer, 64 on a CPU");
  add_text(app, "--kv-cache-dtype", options.kv_cache_dtype,
           "auto (the weights' dtype), float32, float16, bfloat16, fp8_e4m3 or fp8_e5m2");
  app.add_flag("--enable-deterministic-inference", options.deterministic_inference,
               "a token depends on its own request alone, bit for bit: not on batch, chunks or preemption");
  app.add_flag("--disable-cuda-graph,--disable-decode-cuda-graph", options.disable_cuda_graph,
               "GPUs: launch every decode step's kernels one by one");
  add_numbers(
      app, "--cuda-graph-bs,--cuda-graph-bs-decode", options.cuda_graph_bs, "1 to the requests of a step",
      "GPUs: batch sizes of decode steps that get a CUDA graph, such as 1,2,4; smaller batches are padded");
  add_number(app, "--cuda-graph-max-bs,--cuda-graph-max-bs-decode", options.cuda_graph_max_bs,
             "GPUs: the largest of them, when they are chosen");
}

void add_size_options(CLI::App& app, EngineOptions& options) {
  add_number(app, "--context-length,--max-model-len", options.context_length,
             "tokens of a request, prompt and completion; default: the model's");
  add_number(app, "--max-running-requests,--max-num-seqs", options.max_running_requests,
             "requests in a step at most; default: 32 on a CPU, 256 on a GPU");
  add_number(app, "--max-total-tokens", options.max_total_tokens,
             "tokens that the KV pool holds, in whole pages; default: by the memory there is");
  add_number(app, "--max-kv-tokens", options.max_kv_tokens,
             "keys that the requests of a step attend to together at most; default: the KV pool's tokens");
  add_number(app, "--mem-fraction-static", options.mem_fraction_static,
             "GPUs: share of the memory for weights and KV pool");
  add_number(app, "--chunked-prefill-size", options.chunked_prefill_size,
             "new tokens in a step at most; longer prompts are computed in chunks");
}

void add_run_options(CLI::App& app, EngineOptions& options) {
  add_text(app, "--load-format", options.load_format, "auto, safetensors, or dummy (random weights)");
  add_number(app, "--threads", options.threads,
             "CPU threads; default: one per core that this process may use");
  app.add_flag("--log-kernels", options.log_kernels, "log which kernel serves what, each choice once");
}

void set_threads(const CLI::App& app, int threads) {
  require_positive(app, "--threads", threads);
  require(threads <= ThreadTeam::kMaxThreads, "--threads ", threads, ": at most ", ThreadTeam::kMaxThreads);
  if (threads > 0) set_num_threads(threads);
}

EngineConfig to_config(const CLI::App& app, const EngineOptions& options) {
  require_positive(app, "--context-length", options.context_length);
  require_positive(app, "--max-running-requests", options.max_running_requests);
  require_positive(app, "--max-total-tokens", options.max_total_tokens);
  require_positive(app, "--max-kv-tokens", options.max_kv_tokens);
  require_positive(app, "--chunked-prefill-size", options.chunked_prefill_size);
  require_positive(app, "--cuda-graph-max-bs", options.cuda_graph_max_bs);
  set_threads(app, options.threads);

  EngineConfig config;
  config.model_path = options.model_path;
  config.load_format = parse_load_format(options.load_format);
  config.device = parse_device(options.device);
  if (config.device.type == DeviceType::kCpu) refuse_gpu_flags(app);
  config.wishes.attention_backend = options.attention_backend;
  config.wishes.prefill_backend = options.prefill_attention_backend;
  config.wishes.decode_backend = options.decode_attention_backend;
  if (given(app, "--page-size")) config.wishes.page_size = options.page_size;
  if (options.dtype != "auto") config.dtype = parse_dtype(options.dtype);
  if (options.kv_cache_dtype != "auto") config.kv_cache_dtype = parse_dtype(options.kv_cache_dtype);
  config.context_length = options.context_length;
  config.max_running_requests = options.max_running_requests;
  config.max_total_tokens = options.max_total_tokens;
  config.max_kv_tokens = options.max_kv_tokens;
  config.mem_fraction_static = options.mem_fraction_static;
  config.disable_cuda_graph = options.disable_cuda_graph;
  config.cuda_graph_bs = options.cuda_graph_bs;
  config.cuda_graph_max_bs = options.cuda_graph_max_bs;
  config.chunked_prefill_size = options.chunked_prefill_size;
  config.deterministic_inference = options.deterministic_inference;
  config.log_kernels = options.log_kernels;
  config.random_seed = options.random_seed;
  return config;
}

}  // namespace attend::cli
