#include "engine/read_options.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <span>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/tensor/cuda.h"

namespace attend::python {
namespace {

std::string to_repr(nb::handle value) { return nb::cast<std::string>(nb::repr(value)); }

// Field of a struct that is read from Python. `read` returns false for an invalid value.
template <class Struct>
struct Field {
  std::string_view name, expected;
  bool (*read)(nb::handle value, Struct& to);
};

// Rejects bool, which is a number in Python.
template <class T>
bool read_value(nb::handle value, T& to) {
  if (!std::is_same_v<T, bool> && PyBool_Check(value.ptr())) return false;
  return nb::try_cast(value, to);
}

template <class Struct, auto kMember>
bool read_member(nb::handle value, Struct& to) {
  return read_value(value, to.*kMember);
}

template <class Struct>
void read_fields(nb::dict options, std::span<const Field<Struct>> fields, Struct& to) {
  for (const auto& [key, value] : options) {
    const auto name = nb::cast<std::string>(key);
    const Field<Struct>* field = nullptr;
    for (const Field<Struct>& one : fields)
      if (one.name == name) field = &one;
    require(field != nullptr, name, ": unknown option");
    bool taken = false;
    try {
      taken = field->read(value, to);
    } catch (const Error& error) {
      fail(error.code(), name, ": ", error.what());
    }
    require(taken, name, " ", to_repr(value), ": expected ", field->expected);
  }
}

Device parse_device(std::string_view name) {
  constexpr std::string_view kCuda = "cuda:";
  if (name == "auto") return {cuda::device_count() > 0 ? DeviceType::kCuda : DeviceType::kCpu, 0};
  if (name == "cpu") return {DeviceType::kCpu, 0};
  if (name == "cuda") return {DeviceType::kCuda, 0};
  int index = 0;
  if (name.starts_with(kCuda))
    if (const auto [rest, error] =
            std::from_chars(name.data() + kCuda.size(), name.data() + name.size(), index);
        error == std::errc() && rest == name.data() + name.size() && index >= 0)
      return {DeviceType::kCuda, index};
  fail(ErrorCode::kInvalidArgument, "'", name, "': expected auto, cpu, cuda or cuda:N");
}

LoadFormat parse_load_format(std::string_view name) {
  if (name == "auto" || name == "safetensors" || name == "gguf") return LoadFormat::kAuto;
  if (name == "dummy") return LoadFormat::kDummy;
  fail(ErrorCode::kInvalidArgument, "'", name, "': expected auto, safetensors, gguf or dummy");
}

// Rejects the format of other files than the model's.
void check_load_format(nb::dict options, const std::filesystem::path& model) {
  std::string given;
  if (!options.contains("load_format") || !nb::try_cast(options["load_format"], given)) return;
  const bool is_gguf = model.extension() == kGgufExtension;
  if (given == (is_gguf ? "safetensors" : "gguf"))
    fail(ErrorCode::kInvalidArgument, "load_format '", given, "': expected auto, ",
         is_gguf ? "gguf" : "safetensors", " or dummy");
}

// Reads a text that `parse` accepts.
template <class Parse, class T>
bool read_name(nb::handle value, Parse parse, T& to) {
  std::string name;
  if (!nb::try_cast(value, name)) return false;
  to = parse(name);
  return true;
}

bool read_dtype(nb::handle value, std::optional<DType>& to) {
  return read_name(
      value,
      [](const std::string& name) {
        return name == "auto" ? std::optional<DType>() : std::optional(parse_dtype(name));
      },
      to);
}

bool read_cache_dtype(nb::handle value, std::optional<DType>& to) {
  return read_name(
      value,
      [](const std::string& name) {
        return name == "auto" ? std::optional<DType>() : std::optional(kernels::parse_cache_dtype(name));
      },
      to);
}

bool read_threads(nb::handle value) {
  int threads = 0;
  if (!read_value(value, threads)) return false;
  set_num_threads(threads);
  return true;
}

using C = EngineConfig;
constexpr std::string_view kText = "a text", kBool = "True or False", kNumber = "a number",
                           kWhole = "an integer";

constexpr Field<C> kConfigFields[] = {
    {"model_path", kText,
     [](nb::handle value, C& to) {
       std::string path;
       const bool taken = nb::try_cast(value, path);
       to.model_path = path;
       return taken;
     }},
    {"load_format", kText,
     [](nb::handle value, C& to) { return read_name(value, parse_load_format, to.load_format); }},
    {"device", kText, [](nb::handle value, C& to) { return read_name(value, parse_device, to.device); }},
    {"tp_size", kWhole, read_member<C, &C::tp_size>},
    {"dtype", kText, [](nb::handle value, C& to) { return read_dtype(value, to.dtype); }},
    {"kv_cache_dtype", kText,
     [](nb::handle value, C& to) { return read_cache_dtype(value, to.kv_cache_dtype); }},
    {"attention_backend", kText,
     [](nb::handle value, C& to) { return read_value(value, to.backend_options.attention_backend); }},
    {"prefill_attention_backend", kText,
     [](nb::handle value, C& to) { return read_value(value, to.backend_options.prefill_backend); }},
    {"decode_attention_backend", kText,
     [](nb::handle value, C& to) { return read_value(value, to.backend_options.decode_backend); }},
    {"page_size", kWhole,
     [](nb::handle value, C& to) { return read_value(value, to.backend_options.page_size); }},
    {"context_length", kWhole, read_member<C, &C::context_length>},
    {"max_running_requests", kWhole, read_member<C, &C::max_running_requests>},
    {"max_total_tokens", kWhole, read_member<C, &C::max_total_tokens>},
    {"max_kv_tokens", kWhole, read_member<C, &C::max_kv_tokens>},
    {"swa_full_tokens_ratio", kNumber, read_member<C, &C::swa_full_tokens_ratio>},
    {"mamba_full_memory_ratio", kNumber, read_member<C, &C::mamba_full_memory_ratio>},
    {"max_mamba_cache_size", kWhole, read_member<C, &C::max_mamba_cache_size>},
    {"state_snapshot_interval", kWhole, read_member<C, &C::state_snapshot_interval>},
    {"disable_hybrid_swa_memory", kBool, read_member<C, &C::disable_hybrid_swa_memory>},
    {"mem_fraction_static", kNumber, read_member<C, &C::mem_fraction_static>},
    {"disable_cuda_graph", kBool, read_member<C, &C::disable_cuda_graph>},
    {"cuda_graph_bs", "a list of integers", read_member<C, &C::cuda_graph_bs>},
    {"cuda_graph_max_bs", kWhole, read_member<C, &C::cuda_graph_max_bs>},
    {"chunked_prefill_size", kWhole, read_member<C, &C::chunked_prefill_size>},
    {"recompute_longrope", kBool, read_member<C, &C::recompute_longrope>},
    {"disable_radix_cache", kBool, read_member<C, &C::disable_radix_cache>},
    {"enable_overlap_schedule", kBool, read_member<C, &C::overlap_schedule>},
    {"disable_cascade_attention", kBool, read_member<C, &C::disable_cascade_attention>},
    {"radix_eviction_policy", kText,
     [](nb::handle value, C& to) {
       return read_name(value, parse_eviction_policy, to.radix_eviction_policy);
     }},
    {"enable_hierarchical_cache", kBool,
     [](nb::handle value, C& to) { return read_value(value, to.hierarchical_cache.enabled); }},
    {"hicache_ratio", kNumber,
     [](nb::handle value, C& to) { return read_value(value, to.hierarchical_cache.ratio); }},
    {"hicache_size", kNumber,
     [](nb::handle value, C& to) { return read_value(value, to.hierarchical_cache.size_gb); }},
    {"hicache_write_policy", kText,
     [](nb::handle value, C& to) {
       return read_name(value, parse_host_write_policy, to.hierarchical_cache.write_policy);
     }},
    {"hicache_storage_dir", kText,
     [](nb::handle value, C& to) {
       std::string path;
       const bool taken = nb::try_cast(value, path);
       to.hierarchical_cache.storage_dir = path;
       return taken;
     }},
    {"hicache_storage_size", kNumber,
     [](nb::handle value, C& to) { return read_value(value, to.hierarchical_cache.storage_size_gb); }},
    {"speculative_algorithm", kText,
     [](nb::handle value, C& to) {
       return read_name(value, parse_speculative_algorithm, to.speculation.algorithm);
     }},
    {"speculative_draft_model_path", kText,
     [](nb::handle value, C& to) {
       std::string path;
       const bool taken = nb::try_cast(value, path);
       to.speculation.draft_model_path = path;
       return taken;
     }},
    {"speculative_draft_attention_backend", kText,
     [](nb::handle value, C& to) { return read_value(value, to.speculation.draft_attention_backend); }},
    {"speculative_attention_mode", "'decode' or 'prefill'",
     [](nb::handle value, C& to) {
       std::string mode;
       if (!nb::try_cast(value, mode) || (mode != "decode" && mode != "prefill")) return false;
       to.speculation.attention_mode = mode == "prefill" ? Phase::kPrefill : Phase::kDecode;
       return true;
     }},
    {"speculative_num_steps", kWhole,
     [](nb::handle value, C& to) { return read_value(value, to.speculation.num_steps); }},
    {"speculative_eagle_topk", kWhole,
     [](nb::handle value, C& to) { return read_value(value, to.speculation.eagle_topk); }},
    {"speculative_adaptive", kBool,
     [](nb::handle value, C& to) { return read_value(value, to.speculation.adaptive); }},
    {"speculative_adaptive_config", kText,
     [](nb::handle value, C& to) {
       std::string path;
       const bool taken = nb::try_cast(value, path);
       to.speculation.adaptive_config = path;
       return taken;
     }},
    {"speculative_num_draft_tokens", kWhole,
     [](nb::handle value, C& to) { return read_value(value, to.speculation.num_draft_tokens); }},
    {"speculative_ngram_max_match_window_size", kWhole,
     [](nb::handle value, C& to) { return read_value(value, to.speculation.ngram_max_match_window_size); }},
    {"speculative_ngram_min_match_window_size", kWhole,
     [](nb::handle value, C& to) { return read_value(value, to.speculation.ngram_min_match_window_size); }},
    {"speculative_suffix_max_tree_depth", kWhole,
     [](nb::handle value, C& to) { return read_value(value, to.speculation.suffix.max_tree_depth); }},
    {"speculative_suffix_max_cached_requests", kWhole,
     [](nb::handle value, C& to) { return read_value(value, to.speculation.suffix.max_cached_requests); }},
    {"speculative_suffix_max_spec_factor", kNumber,
     [](nb::handle value, C& to) { return read_value(value, to.speculation.suffix.max_spec_factor); }},
    {"speculative_suffix_min_token_prob", kNumber,
     [](nb::handle value, C& to) { return read_value(value, to.speculation.suffix.min_token_prob); }},
    {"speculative_disable_by_batch_size", kWhole,
     [](nb::handle value, C& to) { return read_value(value, to.speculation.disable_by_batch_size); }},
    {"schedule_policy", kText,
     [](nb::handle value, C& to) { return read_name(value, parse_schedule_policy, to.schedule.policy); }},
    {"schedule_conservativeness", kNumber,
     [](nb::handle value, C& to) { return read_value(value, to.schedule.conservativeness); }},
    {"lora_paths", "a dict of names and folders",
     [](nb::handle value, C& to) {
       std::vector<std::pair<std::string, std::string>> paths;
       if (!nb::try_cast(value, paths)) return false;
       for (const auto& [name, path] : paths) to.lora_paths.push_back({.name = name, .path = path});
       return true;
     }},
    {"enable_lora", kBool, read_member<C, &C::enable_lora>},
    {"max_queued_requests", kWhole,
     [](nb::handle value, C& to) { return read_value(value, to.schedule.max_queued_requests); }},
    {"enable_deterministic_inference", kBool, read_member<C, &C::deterministic_inference>},
    {"log_kernels", kBool, read_member<C, &C::log_kernels>},
    {"random_seed", "an integer from 0", read_member<C, &C::random_seed>},
    {"threads", kWhole, [](nb::handle value, C&) { return read_threads(value); }}};

using E = EmbedderConfig;

constexpr Field<E> kEmbedderFields[] = {
    {"model_path", kText,
     [](nb::handle value, E& to) {
       std::string path;
       const bool taken = nb::try_cast(value, path);
       to.model_path = path;
       return taken;
     }},
    {"load_format", kText,
     [](nb::handle value, E& to) { return read_name(value, parse_load_format, to.load_format); }},
    {"device", kText, [](nb::handle value, E& to) { return read_name(value, parse_device, to.device); }},
    {"dtype", kText, [](nb::handle value, E& to) { return read_dtype(value, to.dtype); }},
    {"attention_backend", kText,
     [](nb::handle value, E& to) { return read_value(value, to.backend_options.attention_backend); }},
    {"prefill_attention_backend", kText,
     [](nb::handle value, E& to) { return read_value(value, to.backend_options.prefill_backend); }},
    {"decode_attention_backend", kText,
     [](nb::handle value, E& to) { return read_value(value, to.backend_options.decode_backend); }},
    {"page_size", kWhole,
     [](nb::handle value, E& to) { return read_value(value, to.backend_options.page_size); }},
    {"context_length", kWhole, read_member<E, &E::max_input_tokens>},
    {"max_input_tokens", kWhole, read_member<E, &E::max_input_tokens>},
    {"pooling", "mean, cls or last",
     [](nb::handle value, E& to) { return read_name(value, parse_pooling, to.pooling); }},
    {"normalize", kBool, read_member<E, &E::normalize>},
    {"is_reranker", kBool, read_member<E, &E::is_reranker>},
    {"threads", kWhole, [](nb::handle value, E&) { return read_threads(value); }}};

using P = SamplingParams;
constexpr std::string_view kFromZero = "an integer from 0";

constexpr Field<P> kSamplingFields[] = {
    {"max_tokens", kWhole, read_member<P, &P::max_new_tokens>},
    {"temperature", kNumber, read_member<P, &P::temperature>},
    {"top_k", kWhole, read_member<P, &P::top_k>},
    {"top_p", kNumber, read_member<P, &P::top_p>},
    {"min_p", kNumber, read_member<P, &P::min_p>},
    {"seed", kFromZero, read_member<P, &P::seed>},
    {"repetition_penalty", kNumber, read_member<P, &P::repetition_penalty>},
    {"frequency_penalty", kNumber, read_member<P, &P::frequency_penalty>},
    {"presence_penalty", kNumber, read_member<P, &P::presence_penalty>},
    {"logit_bias", "a list of (token id, bias)", read_member<P, &P::logit_bias>},
    {"min_tokens", kWhole, read_member<P, &P::min_tokens>},
    {"stop_token_ids", "a list of token ids", read_member<P, &P::stop_token_ids>},
    {"stop", "a text or a list of texts", read_member<P, &P::stop>},
    {"include_stop_str_in_output", kBool, read_member<P, &P::include_stop>},
    {"ignore_eos", kBool, read_member<P, &P::ignore_eos>},
    {"skip_special_tokens", kBool, read_member<P, &P::skip_special_tokens>},
    {"n", kWhole, read_member<P, &P::n>},
    {"logprobs", kFromZero, read_member<P, &P::logprobs>},
    {"prompt_logprobs", kFromZero, read_member<P, &P::prompt_logprobs>}};

void warn(const std::string& message) {
  if (PyErr_WarnEx(PyExc_UserWarning, message.c_str(), 1) != 0) throw nb::python_error();
}

}  // namespace

EngineConfig engine_config(nb::dict options) {
  EngineConfig config;
  read_fields<EngineConfig>(options, kConfigFields, config);
  check_load_format(options, config.model_path);
  if (config.device.type == DeviceType::kCpu)
    for (const char* name :
         {"mem_fraction_static", "disable_cuda_graph", "cuda_graph_bs", "cuda_graph_max_bs"})
      if (options.contains(name)) warn(std::string(name) + ": ignored; only for GPUs, and the device is cpu");
  return config;
}

EmbedderConfig embedder_config(nb::dict options) {
  const auto is_in = [](const auto& fields, const std::string& name) {
    return std::any_of(std::begin(fields), std::end(fields),
                       [&](const auto& field) { return field.name == name; });
  };
  for (const auto& [key, value] : options)
    if (const auto name = nb::cast<std::string>(key);
        is_in(kConfigFields, name) && !is_in(kEmbedderFields, name))
      fail(ErrorCode::kUnsupported, name, ": has no effect on a model that returns vectors or scores");
  EmbedderConfig config;
  read_fields<EmbedderConfig>(options, kEmbedderFields, config);
  check_load_format(options, config.model_path);
  return config;
}

SamplingParams sampling_params(nb::dict options) {
  SamplingParams params;
  read_fields<SamplingParams>(options, kSamplingFields, params);
  check(params);
  return params;
}

}  // namespace attend::python
