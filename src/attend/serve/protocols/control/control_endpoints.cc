#include "attend/serve/protocols/control/control_endpoints.h"

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/serve/http/url_query.h"
#include "attend/serve/json/json_text.h"
#include "attend/serve/protocols/errors.h"

namespace attend::serve {
namespace {

constexpr std::string_view kTags = "\"weights\" or \"kv_cache\"";

// Text of an error, with paths of files: clients of these endpoints administer the server.
std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& known) {
    return known.what();
  }
}

std::string result_json(const ControlResult& result, const std::string& message) {
  const Json reply = {
      {"success", result.error == nullptr}, {"message", message}, {"num_paused_requests", result.num_paused}};
  return json_text(reply);
}

// Returns a callback that sends {success, message, num_paused_requests}, with status 400 for an error as
// SGLang does. Out of memory, only the status is left to send.
ControlCallback reply_with(const SendJson& send, std::string success,
                           std::function<void()> on_success = nullptr) {
  return
      [send, success = std::move(success), on_success = std::move(on_success)](const ControlResult& result) {
        try {
          if (result.error == nullptr && on_success) on_success();
          const std::string message = result.error ? message_of(result.error) : success;
          if (result.error)
            log_warning("a change of weights or memory failed: ", message);
          else
            log_info(message);
          send(result.error ? 400 : 200, result_json(result, message));
        } catch (const std::exception&) {
          send(503, "{}");
        }
      };
}

void add_tag(MemoryParts& parts, const std::string& tag) {
  if (tag == "weights")
    parts.weights = true;
  else if (tag == "kv_cache")
    parts.kv_cache = true;
  else if (tag != "cuda_graph")  // released with the weights
    reject("tags", "tags: ", excerpt(tag), ": expected ", kTags);
}

MemoryParts read_tags(const std::vector<std::string>& tags) {
  if (tags.empty()) return {.weights = true, .kv_cache = true};
  MemoryParts parts;
  for (const std::string& tag : tags) add_tag(parts, tag);
  if (!parts.any()) reject("tags", "tags: expected ", kTags);
  return parts;
}

std::string names_of(MemoryParts parts) {
  if (parts.weights && parts.kv_cache) return "weights and kv_cache";
  return parts.weights ? "weights" : "kv_cache";
}

void release(MemoryParts parts, AsyncEngine& engine, const SendJson& send) {
  engine.release_memory(parts, reply_with(send, "released the memory of " + names_of(parts)));
}

void resume(MemoryParts parts, AsyncEngine& engine, const SendJson& send) {
  engine.allocate_memory(parts, reply_with(send, "resumed " + names_of(parts)));
}

}  // namespace

void update_weights(const Json& body, AsyncEngine& engine, ServedWeights& served,
                    std::vector<std::string>& ignored, const SendJson& send) {
  const Fields fields(body);
  const std::string name = fields.string("model_path").value_or("");
  if (name.empty()) reject("model_path", "model_path: missing; expected a model directory or file");
  const std::string format = fields.string("load_format").value_or("auto");
  if (format != "auto" && format != "safetensors" && format != "gguf")
    reject_unsupported("load_format", excerpt(format), ": expected \"auto\"");
  WeightUpdate update{.model_path = {},
                      .flush_cache = fields.boolean("flush_cache").value_or(true),
                      .abort_requests = fields.boolean("abort_all_requests").value_or(false)};
  const std::string version = fields.string("weight_version").value_or(served.get().version);
  ignored = fields.unknown();
  try {
    update.model_path = find_model(name);
  } catch (const Error&) {
    const ControlResult result{.error = std::current_exception()};
    return send(400, result_json(result, message_of(result.error)));
  }
  ServedWeights::Source source{.path = update.model_path, .version = version};
  const std::string success = "the weights are those of " + name;
  engine.update_weights(std::move(update),
                        reply_with(send, success, [&served, source] { served.set(source); }));
}

void pause_generation(const Json& body, AsyncEngine& engine, std::vector<std::string>& ignored,
                      const SendJson& send) {
  const Fields fields(body);
  const std::string mode = fields.string("mode").value_or("abort");
  const bool aborts = mode == "abort", retracts = mode == "retract";
  if (!aborts && !retracts && mode != "in_place")
    reject("mode", "mode ", excerpt(mode), R"(: expected "abort", "retract" or "in_place")");
  ignored = fields.unknown();
  engine.pause(aborts     ? PauseMode::kAbort
               : retracts ? PauseMode::kRetract
                          : PauseMode::kInPlace,
               reply_with(send, "generation is paused"));
}

void release_memory(const Json& body, AsyncEngine& engine, std::vector<std::string>& ignored,
                    const SendJson& send) {
  const Fields fields(body);
  const MemoryParts parts = read_tags(fields.strings("tags"));
  ignored = fields.unknown();
  release(parts, engine, send);
}

void resume_memory(const Json& body, AsyncEngine& engine, std::vector<std::string>& ignored,
                   const SendJson& send) {
  const Fields fields(body);
  const MemoryParts parts = read_tags(fields.strings("tags"));
  ignored = fields.unknown();
  resume(parts, engine, send);
}

void sleep(std::string_view query, AsyncEngine& engine, const SendJson& send) {
  for (const auto& [name, value] : parse_query(query))
    if (name == "level" && value != "1" && value != "2")
      reject("level", "level ", excerpt(value), ": expected 1 or 2");
  // Weights are read from their files again, so both levels free all memory.
  release({.weights = true, .kv_cache = true}, engine, send);
}

void wake_up(std::string_view query, AsyncEngine& engine, const SendJson& send) {
  std::vector<std::string> tags;
  for (auto& [name, value] : parse_query(query))
    if (name == "tags") tags.push_back(std::move(value));
  resume(read_tags(tags), engine, send);
}

}  // namespace attend::serve
