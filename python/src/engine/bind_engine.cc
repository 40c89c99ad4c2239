// Bindings of the engine for attend/engine.py. Requests run on AsyncEngine's thread, which never holds the
// GIL.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <future>
#include <memory>
#include <shared_mutex>
#include <sstream>
#include <variant>

#include "attend/attention/resolver.h"
#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "attend/engine/async_engine.h"
#include "attend/grammar/grammar_compiler.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/model/config/model_spec.h"
#include "attend/text/chat_template/chat_template.h"
#include "attend/text/tokenizer/tokenizer.h"
#include "call_in_flight.h"
#include "engine/read_options.h"
#include "engine/request_stream.h"
#include "interruptible_wait.h"
#include "module.h"
#include "released_gil.h"

namespace attend::python {
namespace {

using std::chrono::milliseconds;

// AsyncEngine that may be closed while other threads use it.
class EngineHandle {
 public:
  // `grammar_folder`: see GrammarLibrary::load. `named`: set by the caller, so that a wrong folder is an
  // error.
  EngineHandle(nb::dict options, const std::filesystem::path& grammar_folder, bool named) {
    const EngineConfig config = engine_config(options);
    const GrammarLibrary library =
        named ? GrammarLibrary::load(grammar_folder) : GrammarLibrary::find(grammar_folder);
    engine_ = load_interruptibly([&](auto& check) {
      EngineProgress progress;
      progress.weights = [&](size_t, size_t) { check(); };
      return std::make_unique<AsyncEngine>(config, progress);
    });
    grammars_ = std::make_unique<GrammarCompiler>(
        library, GrammarVocabulary::make(engine_->tokenizer(), engine_->model_spec()));
  }
  ~EngineHandle() {
    const ReleasedGil others_run;
    close();
  }

  // Returns true in the process that made the engine. The child of a fork has none of its threads, and its
  // locks may be held for ever.
  bool is_owned() const { return getpid() == pid_; }
  void require_owned() const {
    if (!is_owned())
      fail(ErrorCode::kUnsupported, "the engine belongs to process ", pid_, ", and this is process ",
           getpid(), ", made by a fork: an engine is not inherited; create one in each process");
  }

  // Calls `use` with the engine, which is not closed during the call. Throws Error(kUnsupported) if it was
  // closed.
  template <class Use>
  auto with(Use use) const {
    require_owned();
    const std::shared_lock lock(mutex_);
    if (!engine_) fail(ErrorCode::kUnsupported, "the engine was closed");
    return use(*engine_);
  }
  // Has no effect on finished requests.
  void abort(RequestId id) const {
    if (!is_owned()) return;
    const std::shared_lock lock(mutex_);
    if (engine_) engine_->abort(id);
  }
  // Returns null without a grammar. Waits for compilation; Ctrl-C interrupts the wait.
  std::shared_ptr<TokenMask> make_mask(const std::optional<Grammar>& grammar) const {
    if (!grammar) return nullptr;
    const auto promise = std::make_shared<std::promise<GrammarResult>>();
    std::future<GrammarResult> made = promise->get_future();
    with([&](AsyncEngine&) {
      grammars_->compile(*grammar,
                         [promise](GrammarResult result) { promise->set_value(std::move(result)); });
    });
    wait_interruptibly([&] { return made.wait_for(kBetweenSignals) == std::future_status::ready; });
    GrammarResult result = made.get();
    if (result.error) throw Error(*result.error);
    return result.mask;
  }
  void close() {
    if (!is_owned()) return detach();
    const std::unique_lock lock(mutex_);
    grammars_.reset();
    engine_.reset();
  }
  bool closed() const {
    if (!is_owned()) return true;
    const std::shared_lock lock(mutex_);
    return engine_ == nullptr;
  }

 private:
  // Leaves the engine to the process that made it: its threads cannot be joined here.
  void detach() {
    (void)grammars_.release();
    (void)engine_.release();
  }

  const pid_t pid_ = getpid();
  mutable std::shared_mutex mutex_;
  std::unique_ptr<AsyncEngine> engine_;
  std::unique_ptr<GrammarCompiler> grammars_;
};

// Starts an operation of the engine and waits for its end; Ctrl-C ends the wait, not the operation. Throws
// its error.
template <class Start>
void run_control(const EngineHandle& handle, const Start& start) {
  const auto promise = std::make_shared<std::promise<ControlResult>>();
  std::future<ControlResult> ended = promise->get_future();
  {
    const ReleasedGil others_run;
    handle.with([&](AsyncEngine& engine) {
      start(engine, [promise](const ControlResult& result) { promise->set_value(result); });
    });
  }
  wait_interruptibly([&] { return ended.wait_for(kBetweenSignals) == std::future_status::ready; });
  if (const std::exception_ptr error = ended.get().error) std::rethrow_exception(error);
}

MemoryParts memory_parts(const std::vector<std::string>& tags) {
  MemoryParts parts;
  for (const std::string& tag : tags)
    if (tag == "weights")
      parts.weights = true;
    else if (tag == "kv_cache")
      parts.kv_cache = true;
    else
      fail(ErrorCode::kInvalidArgument, "tags: ", tag, ": expected weights or kv_cache");
  return tags.empty() ? MemoryParts{.weights = true, .kv_cache = true} : parts;
}

PauseMode pause_mode(std::string_view mode) {
  if (mode == "abort") return PauseMode::kAbort;
  if (mode == "retract") return PauseMode::kRetract;
  require(mode == "in_place", "mode ", mode, ": expected abort, retract or in_place");
  return PauseMode::kInPlace;
}

// Parses a kind by its name, and the text.
std::optional<Grammar> to_grammar(const std::optional<std::pair<std::string, std::string>>& given) {
  if (!given) return std::nullopt;
  for (const GrammarKind kind :
       {GrammarKind::kJsonSchema, GrammarKind::kRegex, GrammarKind::kEbnf, GrammarKind::kStructuralTag})
    if (to_string(kind) == given->first) return Grammar{kind, given->second};
  fail(ErrorCode::kInvalidArgument, "unknown kind of grammar: ", given->first);
}

nb::str text(std::string_view view) { return nb::str(view.data(), view.size()); }

template <class T>
nb::str printed(const T& value) {
  std::ostringstream out;
  out << value;
  return text(out.str());
}

nb::object optional_text(std::string_view view) { return view.empty() ? nb::none() : nb::object(text(view)); }

// Returns [(logprob, [(token id, logprob), ...]), ...] per token; None if logprobs were not requested.
nb::object to_list(const StoredLogprobs& kept, bool is_requested) {
  if (!is_requested) return nb::none();
  nb::list tokens;
  for (size_t i = 0; i < kept.logprobs.size(); ++i) {
    nb::list tops;
    for (size_t t = 0; t < static_cast<size_t>(kept.num_top); ++t) {
      const TokenLogprob& top = kept.tops[i * static_cast<size_t>(kept.num_top) + t];
      tops.append(nb::make_tuple(top.token_id, top.logprob));
    }
    tokens.append(nb::make_tuple(kept.logprobs[i], tops));
  }
  return tokens;
}

nb::dict to_dict(const NewOutput& output) {
  nb::dict event;
  event["index"] = output.index;
  event["text"] = text(output.text);
  event["token_ids"] = nb::cast(output.token_ids);
  event["finish_reason"] = optional_text(to_string(output.finish_reason));
  event["stop_reason"] =
      output.matched_stop.empty() ? nb::cast(output.matched_token) : nb::object(text(output.matched_stop));
  event["error"] = optional_text(output.message);
  event["logprobs"] = to_list(output.logprobs, !output.logprobs.logprobs.empty());
  event["prompt_token_ids"] = nb::cast(output.prompt_token_ids);
  event["prompt_logprobs"] = to_list(output.prompt_logprobs, output.has_prompt_logprobs);
  event["num_cached_tokens"] = output.num_cached_tokens;
  return event;
}

// Request owned by Python; destroying it aborts it.
class RequestHandle {
 public:
  RequestHandle(std::shared_ptr<EngineHandle> engine, GenerationRequest request)
      : engine_(std::move(engine)), stream_(std::make_shared<RequestStream>(request.params.n)) {
    id_ = engine_->with([&](AsyncEngine& async) {
      return async.submit(std::move(request),
                          [stream = stream_](const RequestOutput& output) { stream->add(output); });
    });
  }
  ~RequestHandle() { abort(); }

  void abort() const {
    if (!engine_->is_owned()) return;
    const ReleasedGil others_run;
    if (!stream_->ended()) engine_->abort(id_);
  }

  // Returns new outputs as dicts of completions. `wait`: waits for at least one, unless all have ended.
  // `finished`: waits until all have ended.
  nb::list take(bool wait, bool finished) const {
    engine_->require_owned();
    std::vector<NewOutput> news;
    wait_interruptibly([&] {
      if (stream_->ended()) return true;
      news = stream_->take(wait ? kBetweenSignals : milliseconds(0), finished);
      return !wait || !news.empty();
    });
    nb::list events;
    for (const NewOutput& output : news) events.append(to_dict(output));
    return events;
  }

  bool ended() const { return !engine_->is_owned() || stream_->ended(); }
  int fd() const { return stream_->fd(); }

 private:
  std::shared_ptr<EngineHandle> engine_;
  std::shared_ptr<RequestStream> stream_;
  RequestId id_ = 0;
};

using PromptVariant = std::variant<std::string, std::vector<int32_t>>;

RequestHandle* submit(std::shared_ptr<EngineHandle> engine, PromptVariant prompt, nb::dict sampling,
                      std::string cache_salt, int priority,
                      const std::optional<std::pair<std::string, std::string>>& grammar,
                      std::string adapter) {
  GenerationRequest request{.prompt = std::move(prompt),
                            .params = sampling_params(sampling),
                            .adapter = std::move(adapter),
                            .mask = engine->make_mask(to_grammar(grammar)),
                            .cache_salt = std::move(cache_salt),
                            .priority = priority};
  const ReleasedGil others_run;
  return new RequestHandle(std::move(engine), std::move(request));
}

nb::dict make_info(const EngineHandle& handle) {
  const EngineInfo& info =
      handle.with([](AsyncEngine& engine) -> const EngineInfo& { return engine.info(); });
  const ExecutorInfo& target = info.target();
  nb::dict record;
  record["model"] = text(target.model);
  record["device"] = printed(target.device);
  record["dtype"] = text(to_string(target.dtype));
  record["kv_cache_dtype"] = text(kernels::cache_dtype_name(target.kv_cache_dtype));
  record["prefill_attention_backend"] = text(target.resolution.prefill->name);
  record["decode_attention_backend"] = text(target.resolution.decode->name);
  record["page_size"] = info.page_size;
  record["deterministic"] = info.deterministic;
  record["context_length"] = info.context_length;
  record["max_running_requests"] = info.limits.max_reqs;
  record["max_total_tokens"] = info.pool_slots;
  record["weight_bytes"] = info.weight_bytes();
  record["pool_bytes"] = info.pool_bytes();
  return record;
}

nb::dict make_metrics(const EngineHandle& handle) {
  const EngineMetrics metrics = handle.with([](AsyncEngine& engine) { return engine.metrics(); });
  nb::dict record, finished;
  record["num_running"] = metrics.num_running;
  record["num_waiting"] = metrics.num_waiting;
  record["num_used_tokens"] = metrics.num_used_tokens;
  record["num_total_tokens"] = metrics.num_total_tokens;
  record["num_steps"] = metrics.num_steps;
  record["num_requests"] = metrics.num_requests;
  record["num_prompt_tokens"] = metrics.num_prompt_tokens;
  record["num_generated_tokens"] = metrics.num_generated_tokens;
  record["num_preemptions"] = metrics.num_preemptions;
  for (size_t reason = 1; reason < metrics.num_finished.size(); ++reason)
    finished[text(to_string(static_cast<FinishReason>(reason)))] = metrics.num_finished[reason];
  record["num_finished"] = finished;
  return record;
}

// Returns the tokenizer, which outlives the engine.
Tokenizer get_tokenizer(const EngineHandle& handle) {
  return handle.with([](AsyncEngine& engine) {
    if (engine.tokenizer() == nullptr)
      fail(ErrorCode::kUnsupported, "text: the model directory has no tokenizer.json; pass token ids");
    return *engine.tokenizer();
  });
}

nb::dict generation_defaults(const std::filesystem::path& directory) {
  const GenerationConfig config = read_generation_config(directory);
  nb::dict record;
  const auto add = [&](const char* name, const auto& value) {
    if (value.has_value()) record[name] = *value;
  };
  add("temperature", config.temperature);
  add("top_k", config.top_k);
  add("top_p", config.top_p);
  add("min_p", config.min_p);
  add("repetition_penalty", config.repetition_penalty);
  return record;
}

}  // namespace

void bind_engine(Module& module) {
  using nb::arg;
  Class<EngineHandle>(module, "EngineHandle", "A model that runs on its own thread.")
      .def(nb::new_([](nb::dict options, const std::filesystem::path& grammar_folder, bool named) {
             return std::make_shared<EngineHandle>(options, grammar_folder, named);
           }),
           arg("options"), arg("grammar_folder"), arg("named"))
      .def("close",
           [](EngineHandle& handle) {
             const ReleasedGil others_run;
             handle.close();
           })
      .def_prop_ro("closed", &EngineHandle::closed)
      .def("pause",
           [](const EngineHandle& handle) {
             const ReleasedGil others_run;
             handle.with([](AsyncEngine& engine) { engine.pause(); });
           })
      .def("resume",
           [](const EngineHandle& handle) { handle.with([](AsyncEngine& engine) { engine.resume(); }); })
      .def(
          "pause_generation",
          [](const EngineHandle& handle, std::string_view mode) {
            run_control(handle, [&](AsyncEngine& engine, ControlCallback done) {
              engine.pause(pause_mode(mode), std::move(done));
            });
          },
          arg("mode"))
      .def(
          "update_weights",
          [](const EngineHandle& handle, const std::filesystem::path& model_path, bool flush_cache,
             bool abort_requests) {
            run_control(handle, [&](AsyncEngine& engine, ControlCallback done) {
              engine.update_weights(
                  {.model_path = model_path, .flush_cache = flush_cache, .abort_requests = abort_requests},
                  std::move(done));
            });
          },
          arg("model_path"), arg("flush_cache"), arg("abort_requests"))
      .def(
          "release_memory",
          [](const EngineHandle& handle, const std::vector<std::string>& tags) {
            const MemoryParts parts = memory_parts(tags);
            run_control(handle, [&](AsyncEngine& engine, ControlCallback done) {
              engine.release_memory(parts, std::move(done));
            });
          },
          arg("tags"))
      .def(
          "resume_memory",
          [](const EngineHandle& handle, const std::vector<std::string>& tags) {
            const MemoryParts parts = memory_parts(tags);
            run_control(handle, [&](AsyncEngine& engine, ControlCallback done) {
              engine.allocate_memory(parts, std::move(done));
            });
          },
          arg("tags"))
      .def("is_sleeping",
           [](const EngineHandle& handle) {
             return handle.with([](AsyncEngine& engine) { return engine.released_memory().any(); });
           })
      .def("info", &make_info)
      .def("metrics", &make_metrics)
      .def("has_tokenizer",
           [](const EngineHandle& handle) {
             return handle.with([](AsyncEngine& engine) { return engine.tokenizer() != nullptr; });
           })
      .def(
          "encode",
          [](const EngineHandle& handle, std::string_view prompt, bool add_special_tokens) {
            return get_tokenizer(handle).encode(prompt, add_special_tokens);
          },
          arg("text"), arg("add_special_tokens"))
      .def(
          "decode",
          [](const EngineHandle& handle, const std::vector<int32_t>& token_ids, bool skip_special_tokens) {
            return get_tokenizer(handle).decode(token_ids, skip_special_tokens);
          },
          arg("token_ids"), arg("skip_special_tokens"))
      .def(
          "token_decoder",
          [](const EngineHandle& handle, bool skip_special_tokens) {
            return TokenTextDecoder(get_tokenizer(handle), skip_special_tokens);
          },
          arg("skip_special_tokens"))
      .def(
          "encode_chat",
          [](const EngineHandle& handle, const ChatTemplate& chat, std::string_view variables,
             bool add_generation_prompt) {
            return chat.encode(get_tokenizer(handle), variables, add_generation_prompt);
          },
          arg("chat_template"), arg("variables"), arg("add_generation_prompt"))
      .def("submit", &submit, arg("prompt"), arg("sampling"), arg("cache_salt"), arg("priority"),
           arg("grammar") = nb::none(), arg("adapter") = "")
      .def(
          "load_adapter",
          [](const EngineHandle& handle, const std::string& name, const std::filesystem::path& path) {
            const ReleasedGil others_run;
            handle.with([&](AsyncEngine& engine) { engine.load_adapter({.name = name, .path = path}); });
          },
          arg("name"), arg("path"))
      .def(
          "unload_adapter",
          [](const EngineHandle& handle, const std::string& name) {
            const ReleasedGil others_run;
            handle.with([&](AsyncEngine& engine) { engine.unload_adapter(name); });
          },
          arg("name"))
      .def("adapters", [](const EngineHandle& handle) {
        nb::dict paths;
        for (const AdapterPath& adapter : handle.with([](AsyncEngine& engine) { return engine.adapters(); }))
          paths[text(adapter.name)] = text(adapter.path.string());
        return paths;
      });
  Class<TokenTextDecoder>(module, "TokenTextDecoder", "Texts of tokens in their place in a text.")
      .def("set_prompt",
           [](TokenTextDecoder& self, const std::vector<int32_t>& prompt) { self.set_prompt(prompt); })
      .def("decode", [](const TokenTextDecoder& self, int32_t id) { return text(self.decode(id).text); })
      .def("push", [](TokenTextDecoder& self, int32_t id) { return text(self.push(id).text); });
  Class<RequestHandle>(module, "RequestHandle", "A running request.")
      .def("take", &RequestHandle::take, arg("wait"), arg("finished"))
      .def("abort", &RequestHandle::abort)
      .def_prop_ro("ended", &RequestHandle::ended)
      .def("fileno", &RequestHandle::fd);
  Class<ChatTemplate>(module, "ChatTemplate",
                      "Renders a conversation as the text that a model was trained on.")
      .def_static(
          "find",
          [](const std::filesystem::path& directory, const std::string& name_or_path) {
            return ChatTemplate::find(directory, name_or_path);
          },
          arg("directory"), arg("name_or_path"));
  module.def(
      "choice_grammar", [](const std::vector<std::string>& choices) { return choice_grammar(choices).text; },
      arg("choices"));
  module.def(
      "find_model", [](const std::string& name) { return find_model(name).string(); }, arg("name"));
  module.def("generation_defaults", &generation_defaults, arg("directory"));
}

}  // namespace attend::python
