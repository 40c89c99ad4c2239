// A server whose weights are replaced and whose memory is released while it serves.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <string>
#include <thread>

#include "attend/base/log.h"
#include "attend/serve/http/http_server.h"
#include "attend/serve/protocols/api.h"
#include "tests/support/model_copy.h"

namespace attend::serve {
namespace control_endpoints {

using test::ModelCopy;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::filesystem::path kModel = ATTEND_SOURCE_DIR "/tests/goldens/llama-gqa4-hd32";
constexpr const char* kPrompt =
    R"({"input_ids": [5, 9, 17, 33, 65, 3, 7], "sampling_params": {"max_new_tokens": 8, "temperature": 0}})";

class ControlledServer : public testing::Test {
 protected:
  ControlledServer() {
    set_log_level(LogLevel::kError);
    other_.rotate_embedding();
    runs_ = std::thread([this] {
      server_.run([this](HttpRequest request,
                         std::shared_ptr<Exchange> exchange) { api_.handle(std::move(request), exchange); },
                  [] {});
    });
  }
  ~ControlledServer() override {
    server_.stop();
    runs_.join();
    engine_.reset();
    set_log_level(LogLevel::kInfo);
  }

  static EngineConfig engine_config() {
    EngineConfig config;
    config.model_path = kModel;
    config.context_length = 128;
    config.max_total_tokens = 1024;
    return config;
  }
  static HttpOptions http_options() {
    HttpOptions http;
    http.port = 0;
    http.num_workers = 1;
    return http;
  }
  static ApiOptions api_options() {
    ApiOptions options;
    options.model_path = kModel;
    options.served_names = {"model"};
    options.admin_api_key = "admin";
    return options;
  }

  // Sends a request and returns the answer with its headers.
  std::string ask(const std::string& method, const std::string& path, const std::string& body = "",
                  const std::string& key = "admin") {
    const std::string address = server_.address();
    uint16_t port = 0;
    std::from_chars(address.data() + address.rfind(':') + 1, address.data() + address.size(), port);
    const int connection = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    const std::string request = method + " " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" +
                                "Authorization: Bearer " + key +
                                "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    send(connection, request.data(), request.size(), MSG_NOSIGNAL);
    std::string answer;
    char piece[4096];
    for (ssize_t count = 0; (count = recv(connection, piece, sizeof piece, 0)) > 0;)
      answer.append(piece, static_cast<size_t>(count));
    close(connection);
    return answer;
  }
  std::string post(const std::string& path, const std::string& body = "") { return ask("POST", path, body); }
  // Output ids of the prompt's greedy answer.
  std::string generate() {
    const std::string answer = post("/generate", kPrompt);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
    const size_t ids = answer.find("\"output_ids\"");
    return ids == std::string::npos ? answer : answer.substr(ids, answer.find(']', ids) - ids);
  }
  static std::string update(const std::filesystem::path& path, const std::string& fields = "") {
    return R"({"model_path": ")" + path.string() + "\"" + fields + "}";
  }

  ModelCopy other_{kModel};
  std::unique_ptr<AsyncEngine> engine_ = std::make_unique<AsyncEngine>(engine_config());
  HttpServer server_{http_options()};
  Api api_{*engine_, std::nullopt, ChatFormats(), GrammarOptions(), api_options(), server_, [this] {
             return server_.metrics();
           }};
  std::thread runs_;
};

const auto kSuccess = AllOf(StartsWith("HTTP/1.1 200"), HasSubstr(R"("success":true)"));
const auto kUnavailable =
    AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("the engine sleeps"), HasSubstr("\"unavailable\""));

TEST_F(ControlledServer, ServesTheWeightsOfAnUpdate) {
  const std::string old_answer = generate();
  EXPECT_THAT(ask("GET", "/model_info"), HasSubstr(R"("weight_version":"default")"));
  EXPECT_THAT(
      post("/update_weights_from_disk", update(other_.path(), R"(, "weight_version": "step 7")")),
      AllOf(kSuccess, HasSubstr(R"("num_paused_requests":0)"), HasSubstr("the weights are those of")));
  const std::string new_answer = generate();
  EXPECT_NE(new_answer, old_answer);
  EXPECT_THAT(ask("GET", "/model_info"),
              AllOf(HasSubstr(R"("weight_version":"step 7")"), HasSubstr(other_.path().string())));
  EXPECT_THAT(post("/update_weights_from_disk", update(kModel)), kSuccess);
  EXPECT_EQ(generate(), old_answer);
}

TEST_F(ControlledServer, KeepsServingAfterUpdatesThatFail) {
  const std::string expected = generate();
  const auto is_refused = AllOf(StartsWith("HTTP/1.1 400"), HasSubstr(R"("success":false)"));
  EXPECT_THAT(post("/update_weights_from_disk", update("/nowhere")),
              AllOf(is_refused, HasSubstr("/nowhere")));
  ModelCopy broken(kModel);
  test::TestTensor& tensor = broken.tensor("layers.1.mlp.up_proj.weight");
  tensor.shape[0] /= 2;
  tensor.data.resize(tensor.data.size() / 2);
  broken.write();
  EXPECT_THAT(post("/update_weights_from_disk", update(broken.path())),
              AllOf(is_refused, HasSubstr("layers.1.mlp.up_proj.weight"), HasSubstr("[24, 48]")));
  EXPECT_THAT(post("/update_weights_from_disk", "{}"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("model_path: missing")));
  EXPECT_THAT(post("/update_weights_from_disk", update(kModel, R"(, "load_format": "sharded_state")")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("load_format")));
  EXPECT_THAT(ask("GET", "/model_info"),
              AllOf(HasSubstr(kModel.string()), HasSubstr(R"("weight_version":"default")")));
  EXPECT_EQ(generate(), expected);
}

TEST_F(ControlledServer, SleepsAndWakesUp) {
  const std::string expected = generate();
  EXPECT_THAT(ask("GET", "/is_sleeping"), HasSubstr("false"));
  EXPECT_THAT(post("/release_memory_occupation"), kSuccess);
  EXPECT_THAT(ask("GET", "/is_sleeping"), HasSubstr("true"));
  EXPECT_THAT(post("/generate", kPrompt), kUnavailable);
  EXPECT_THAT(ask("GET", "/health"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(post("/resume_memory_occupation", R"({"tags": ["weights"]})"), kSuccess);
  EXPECT_THAT(post("/generate", kPrompt), kUnavailable);
  EXPECT_THAT(post("/resume_memory_occupation", R"({"tags": ["kv_cache"]})"), kSuccess);
  EXPECT_EQ(generate(), expected);
  EXPECT_THAT(post("/sleep?level=2"), kSuccess);
  EXPECT_THAT(post("/generate", kPrompt), kUnavailable);
  EXPECT_THAT(post("/wake_up?tags=weights&tags=kv_cache"), kSuccess);
  EXPECT_EQ(generate(), expected);
  EXPECT_THAT(post("/release_memory_occupation", R"({"tags": ["optimizer"]})"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("optimizer"), HasSubstr("kv_cache")));
  EXPECT_THAT(post("/sleep?level=3"), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("expected 1 or 2")));
}

TEST_F(ControlledServer, LoadsUpdatesOfItsSleepWhenItWakesUp) {
  EXPECT_THAT(post("/update_weights_from_disk", update(other_.path())), kSuccess);
  const std::string expected = generate();
  EXPECT_THAT(post("/update_weights_from_disk", update(kModel)), kSuccess);
  EXPECT_THAT(post("/sleep"), kSuccess);
  EXPECT_THAT(post("/update_weights_from_disk", update("/nowhere")), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(post("/update_weights_from_disk", update(other_.path())), kSuccess);
  EXPECT_THAT(ask("GET", "/is_sleeping"), HasSubstr("true"));
  EXPECT_THAT(post("/wake_up"), kSuccess);
  EXPECT_EQ(generate(), expected);
}

TEST_F(ControlledServer, HoldsRequestsDuringAPause) {
  const std::string old_answer = generate();
  EXPECT_THAT(post("/pause_generation", R"({"mode": "later"})"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("mode")));
  EXPECT_THAT(post("/pause_generation", R"({"mode": "retract"})"), kSuccess);
  std::string answer;
  std::thread waits([&] { answer = generate(); });
  EXPECT_THAT(post("/update_weights_from_disk", update(other_.path())), kSuccess);
  EXPECT_THAT(post("/continue_generation"), kSuccess);
  waits.join();
  EXPECT_NE(answer, old_answer);
  EXPECT_EQ(answer, generate());
}

TEST_F(ControlledServer, RequiresTheAdminKey) {
  for (const char* path : {"/update_weights_from_disk", "/pause_generation", "/continue_generation",
                           "/release_memory_occupation", "/resume_memory_occupation", "/sleep", "/wake_up"}) {
    EXPECT_THAT(ask("POST", path, "{}", "other"), StartsWith("HTTP/1.1 401")) << path;
    EXPECT_THAT(ask("GET", path), StartsWith("HTTP/1.1 405")) << path;
  }
  EXPECT_THAT(ask("GET", "/is_sleeping", "", "other"), HasSubstr("false"));
}

}  // namespace control_endpoints
}  // namespace attend::serve
