// Input: a byte that selects the path and mode, and the body of an HTTP request to the bundled model.
#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "attend/engine/async_engine.h"
#include "attend/serve/protocols/api.h"
#include "attend/text/tokenizer/utf8.h"
#include "tests/fuzz/fuzz.h"

namespace attend::fuzz {
namespace {

using serve::Json;

constexpr const char* kModel = ATTEND_SOURCE_DIR "/models/attend-tiny";
constexpr const char* kPaths[] = {"/v1/chat/completions",
                                  "/v1/completions",
                                  "/generate",
                                  "/tokenize",
                                  "/detokenize",
                                  "/abort_request",
                                  "/v1/messages",
                                  "/v1/messages/count_tokens",
                                  "/v1/responses",
                                  "/v1/responses/input_tokens"};
constexpr int kPathMask = 15, kLeaves = 16, kGenerates = 0xe0;  // bits of the first byte
constexpr int kStepsPerAnswer = 3;

Json parsed(std::string_view text) {
  expect(tokenizer::is_valid_utf8(text));
  return parse_ordered_json(text, "an answer");
}

// Exchange that checks its answer: one reply or one stream that ends. Errors have a message and are the
// client's.
class CheckedAnswer : public serve::Exchange {
 public:
  void reply(int status, std::string_view type, std::string body, serve::Headers headers) override {
    expect(!started_ && !ended_ && (status == 200 || status == 400 || status == 404 || status == 500));
    for (const auto& [name, value] : headers) expect(value.find_first_of("\r\n") == value.npos);
    expect(type == "application/json");
    const Json json = parsed(body);
    if (status != 200) expect(!json["error"]["message"].get<std::string>().empty());
    // Anthropic's API has no reply for an aborted request.
    if (status == 500) expect(json["error"]["details"]["error_code"] == "aborted");
    ended_ = true;
  }
  void begin_stream(std::string_view type, serve::Headers headers) override {
    expect(!started_ && !ended_ && type.starts_with("text/event-stream"));
    for (const auto& [name, value] : headers) expect(value.find_first_of("\r\n") == value.npos);
    started_ = true;
  }
  void write(std::string_view part) override {
    constexpr std::string_view kData = "data: ";
    expect(started_ && !ended_ && part.ends_with("\n\n"));
    for (size_t at = 0; at < part.size();) {
      const size_t end = part.find("\n\n", at);
      std::string_view event = part.substr(at, end - at);
      if (event.starts_with("event: ")) event.remove_prefix(event.find('\n') + 1);
      expect(!done_ && event.starts_with(kData));
      done_ = event == "data: [DONE]" || check_event(parsed(event.substr(kData.size())));
      at = end + 2;
    }
  }
  void end_stream() override {
    expect(started_ && !ended_ && done_);
    ended_ = true;
  }
  void abandon() noexcept override { std::abort(); }  // memory is sufficient
  bool ended() const { return ended_; }

 private:
  // Returns true for the last event of a stream of Anthropic's API or of the Responses API.
  static bool check_event(const Json& event) {
    expect(event.is_object());
    constexpr std::string_view kLast[] = {"message_stop", "error", "response.completed",
                                          "response.incomplete", "response.failed"};
    return event.contains("type") && std::ranges::find(kLast, event["type"]) != std::end(kLast);
  }

  bool started_ = false, done_ = false, ended_ = false;
};

// Executor on the fuzzer's thread, which is both I/O thread and worker. The engine has its own thread.
class OneThread : public serve::Executor {
 public:
  void on_wake(std::function<void()> task) override { wake_task_ = std::move(task); }
  void wake() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      wake_requested_ = true;
    }
    posted_.notify_one();
  }
  void after(std::chrono::milliseconds, std::function<void()>) override {}
  void work(std::function<void()> task) override { task(); }

  bool wake_requested() {
    const std::lock_guard lock(mutex_);
    return wake_requested_;
  }
  // Waits for wake() and runs the queued tasks.
  void run_one() {
    {
      std::unique_lock lock(mutex_);
      posted_.wait(lock, [&] { return wake_requested_; });
      wake_requested_ = false;
    }
    wake_task_();
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  bool wake_requested_ = false;
  std::function<void()> wake_task_;
};

EngineConfig small_engine() {
  set_log_level(LogLevel::kError);
  EngineConfig config;
  config.model_path = kModel;
  config.max_running_requests = 8;
  config.max_total_tokens = 4096;
  config.chunked_prefill_size = 64;  // steps are short even for long prompts
  return config;
}

struct Server {
  AsyncEngine engine{small_engine()};
  OneThread executor;
  serve::Api api{
      engine,
      ChatTemplate::find(kModel, ""),
      serve::ChatFormats(),
      GrammarOptions(),
      serve::ApiOptions{.model_path = kModel, .served_names = {"tiny"}, .api_key = {}, .admin_api_key = {}},
      executor,
      [] { return serve::HttpMetrics{}; }};
};

Server& server() {
  static Server the_server;
  return the_server;
}

}  // namespace
}  // namespace attend::fuzz

// Bits of the first byte: 0 to 3 select the path; 4: the client disconnects; 5 to 7 all set: some tokens are
// generated before the request is aborted. Otherwise no step runs, since steps take most of the time.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attend;
  const size_t path = size == 0 ? 0 : data[0] & fuzz::kPathMask;
  if (size == 0 || path >= std::size(fuzz::kPaths)) return 0;
  fuzz::Server& server = fuzz::server();
  const bool leaves = (data[0] & fuzz::kLeaves) != 0;
  const bool generates = (data[0] & fuzz::kGenerates) == fuzz::kGenerates;
  generates ? server.engine.resume() : server.engine.pause();
  const int64_t first_step = server.engine.metrics().num_steps;
  const auto answer = std::make_shared<fuzz::CheckedAnswer>();
  server.api.handle({.method = "POST",
                     .path = fuzz::kPaths[path],
                     .query = {},
                     .body = std::string(fuzz::text_of(data + 1, size - 1)),
                     .authorization = {},
                     .api_key = {},
                     .content_type = "application/json",
                     .request_id = {},
                     .traceparent = {}},
                    answer);
  while (generates && !answer->ended() &&
         server.engine.metrics().num_steps < first_step + fuzz::kStepsPerAnswer)
    server.executor.run_one();
  if (leaves && answer->on_disconnect)
    std::exchange(answer->on_disconnect, nullptr)(499);
  else
    server.api.abort_all();
  while (!leaves && !answer->ended()) server.executor.run_one();
  fuzz::expect(server.engine.drain(std::chrono::minutes(1)));
  // After a disconnect nothing is answered, and no request is left.
  while (server.executor.wake_requested()) server.executor.run_one();
  fuzz::expect(server.api.num_active() == 0);
  return 0;
}
