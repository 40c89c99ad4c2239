#include "attend/serve/http/http_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http/error.hpp>
#include <charconv>
#include <ctime>

#include "attend/base/log.h"
#include "attend/serve/http/memory.h"
#include "attend/serve/json/json_text.h"

namespace attend::serve {

namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

// Returns the time in the format of RFC 3339, such as 2026-01-31T12:00:00.123Z.
std::string utc_time() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, millis);
}

constexpr size_t kReadBytes = 8 << 10;
// Bytes of a response buffer that are kept for the next response.
constexpr size_t kMaxIdleBytes = 16 << 10;
// Bytes of pipelined requests that are read while one is being answered.
constexpr size_t kMaxPipelinedBytes = 64 << 10;

// Limit of the bytes of all request bodies, in units of the largest allowed body. Small bodies are always
// accepted.
constexpr size_t kLargestBodiesAtOnce = 16;
constexpr size_t kSmallBodyBytes = 64 << 10;

}  // namespace

class HttpSession::Answer : public Exchange {
 public:
  explicit Answer(std::shared_ptr<HttpSession> session) : session_(std::move(session)) {}

  void reply(int status, std::string_view content_type, std::string body, Headers headers) override {
    if (!session_) return;
    log_id(headers);
    status_ = status;
    // A response that never has a body has no Content-Length.
    if (status != static_cast<int>(http::status::no_content))
      headers.emplace_back("Content-Length", std::to_string(body.size()));
    const std::string head = session_->make_head(status, content_type, headers);
    session_->is_head_ ? session_->send(head) : session_->send(head, body);
    finish();
  }

  void begin_stream(std::string_view content_type, Headers headers) override {
    if (!session_) return;
    log_id(headers);
    status_ = 200;
    // HTTP/1.0 has no chunked encoding: closing the connection ends the stream.
    if (session_->http_1_0_)
      session_->keep_alive_ = false;
    else
      headers.emplace_back("Transfer-Encoding", "chunked");
    headers.emplace_back("Cache-Control", "no-cache");
    headers.emplace_back("X-Accel-Buffering", "no");
    session_->send(session_->make_head(200, content_type, headers));
    has_started_ = true;
  }

  void write(std::string_view part) override {
    if (!session_ || session_->is_head_ || part.empty()) return;
    if (session_->http_1_0_) return session_->send(part);
    std::array<char, 2 * sizeof(size_t)> digits;
    const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), part.size(), 16).ptr;
    session_->send(std::string_view(digits.data(), end), "\r\n", part, "\r\n");
  }

  void end_stream() override {
    if (!session_) return;
    if (!session_->http_1_0_ && !session_->is_head_) session_->send("0\r\n\r\n");
    finish();
  }

  void abandon() noexcept override {
    if (!session_) return;
    const auto gone = std::exchange(on_disconnect, nullptr);
    const std::shared_ptr<HttpSession> session = session_;
    const int status = has_started_ ? 0 : session->send_out_of_memory();
    if (status != 0) {
      status_ = status;
      finish();
    } else {
      session->close();
    }
    notify(gone, 503);
  }

  bool has_started() const { return has_started_; }

  // Called when the client has disconnected.
  void disconnect() noexcept {
    session_->try_log_access(kClientClosedRequest);
    session_ = nullptr;
    notify(std::exchange(on_disconnect, nullptr), kClientClosedRequest);
  }

 private:
  static void notify(const std::function<void(int)>& gone, int status) noexcept {
    try {
      if (gone) gone(status);
    } catch (...) {  // out of memory in the last step, an access-log line
    }
  }

  // Uses the id of the response, which the server chooses if the request has none, in the access log.
  void log_id(const Headers& headers) {
    if (!session_->pool_.options.log_access) return;
    for (const auto& [name, value] : headers)
      if (name == "x-request-id") session_->request_id_ = value;
  }

  void finish() noexcept {
    on_disconnect = nullptr;
    const std::shared_ptr<HttpSession> session = std::exchange(session_, nullptr);
    // A response that was cut because its client read too slowly did not arrive.
    session->try_log_access(session->overrun_ ? kClientClosedRequest : status_);
    session->finish_answer();
  }

  static constexpr int kClientClosedRequest = 499;  // as in nginx

  std::shared_ptr<HttpSession> session_;
  int status_ = 0;
  bool has_started_ = false;  // part of the response was sent
};

HttpSession::HttpSession(Transport::Socket socket, SessionPool& pool)
    : pool_(pool),
      transport_(make_transport(std::move(socket), pool.tls)),
      read_timer_(transport_->executor()),
      write_timer_(transport_->executor()),
      watch_timer_(transport_->executor()),
      buffer_(std::max<size_t>(pool.options.max_header_bytes, kMaxPipelinedBytes) + kReadBytes) {
  size_t largest = 0;
  for (const auto& prepared : pool.out_of_memory) largest = std::max(largest, prepared.response.size());
  unsent_.reserve(largest);
  if (pool.options.log_access) client_ = transport_->client();
}

template <class Task>
void HttpSession::guard(Task&& task) noexcept {
  try {
    task();
  } catch (const std::exception& error) {
    try_log_warning("a connection is closed: ", error.what());
    close();
  }
}

void HttpSession::start() noexcept {
  guard([&] {
    arm(read_timer_, pool_.options.request_timeout, &HttpSession::close);
    transport_->start([self = shared_from_this()](Error error) {
      if (self->closed_) return;
      if (error) return self->close();
      self->guard([&] { self->await_request(); });
    });
  });
}

void HttpSession::await_request() {
  parser_.emplace();
  parser_->eager(true);
  parser_->header_limit(pool_.options.max_header_bytes);
  parser_->body_limit(pool_.options.max_body_bytes);
  started_ = continued_ = false;
  arm(read_timer_, pool_.options.idle_timeout, &HttpSession::close);
  if (buffer_.size() > 0)
    parse();
  else
    input_ended_ ? end_connection() : read();
}

void HttpSession::arm(asio::steady_timer& timer, std::chrono::milliseconds delay,
                      void (HttpSession::*on_time)()) {
  timer.expires_after(delay);
  timer.async_wait([self = weak_from_this(), on_time](Error error) {
    const auto session = self.lock();
    if (!error && session) session->guard([&] { ((*session).*on_time)(); });
  });
}

void HttpSession::read() {
  if (reading_ || closed_ || input_ended_) return;
  if ((exchange_ || answered_) && buffer_.size() >= kMaxPipelinedBytes) return watch_client();
  reading_ = true;
  incoming_.resize(kReadBytes);
  transport_->read_some(asio::buffer(incoming_), [self = shared_from_this()](Error error, size_t num_bytes) {
    self->reading_ = false;
    self->guard([&] { self->on_read(error, num_bytes); });
  });
}

void HttpSession::on_read(Error error, size_t num_bytes) {
  if (closed_) return;
  if (error == asio::error::eof && !lingering_) {
    input_ended_ = true;
    if (exchange_) return watch_client();
    // settle() continues with the requests that arrived before the end.
    if (!answered_ || !keep_alive_) end_connection();
    return;
  }
  if (error) return close();
  buffer_.commit(asio::buffer_copy(buffer_.prepare(num_bytes), asio::buffer(incoming_, num_bytes)));
  if (lingering_) buffer_.consume(buffer_.size());
  if (exchange_ || answered_ || !keep_alive_)
    read();
  else
    parse();
}

void HttpSession::parse() {
  if (!started_) {
    started_ = true;
    arm(read_timer_, pool_.options.request_timeout, &HttpSession::on_read_timeout);
  }
  Error error;
  while (buffer_.size() > 0 && !parser_->is_done()) {
    const size_t used = parser_->put(buffer_.data(), error);
    buffer_.consume(used);
    if (error == http::error::need_more) error = {};
    if (error || used == 0) break;
  }
  if (error == http::error::body_limit)
    return reject_request(413, fmt::format("the body is larger than {} bytes", pool_.options.max_body_bytes));
  if (error == http::error::header_limit)
    return reject_request(
        431, fmt::format("the headers are larger than {} bytes", pool_.options.max_header_bytes));
  if (error) return reject_request(400, "no HTTP/1.1 request: " + error.message());
  if (parser_->is_header_done() && reject_head()) return;
  if (!hold_body()) return reject_request(503, "too many concurrent requests with large bodies");
  if (parser_->is_done()) return dispatch_request();
  if (buffer_.size() >= pool_.options.max_header_bytes)
    return reject_request(431, "the headers are too large");
  if (parser_->is_header_done() && !continued_ && parser_->get().version() >= 11 &&
      parser_->get().find(http::field::expect) != parser_->get().end()) {
    continued_ = true;
    send("HTTP/1.1 100 Continue\r\n\r\n");
  }
  input_ended_ ? end_connection() : read();
}

void HttpSession::end_connection() {
  keep_alive_ = false;
  answered_ = true;
  settle_later();
}

bool HttpSession::reject_head() {
  auto& message = parser_->get();
  const auto header = [&](auto name) { return std::string_view(message[name].data(), message[name].size()); };
  const std::string_view target(message.target().data(), message.target().size());
  const std::string_view target_host = parse_host(target);
  HeadFields head{.http_1_0 = message.version() < 11,
                  .num_hosts = message.count(http::field::host),
                  .host = target_host.empty() ? header(http::field::host) : target_host,
                  .origin = header(http::field::origin),
                  .sec_fetch_site = header("Sec-Fetch-Site"),
                  .expect = header(http::field::expect),
                  .transfer_encoding = header(http::field::transfer_encoding),
                  .content_encoding = header(http::field::content_encoding)};
  origin_ = one_line(head.origin);
  is_foreign_ = pool_.origins.is_foreign(head);
  if (const auto error = check_head(head)) {
    reject_request(error->status, error->message);
  } else if (pool_.hosts && !pool_.hosts->accept(head.host)) {
    reject_request(403,
                   fmt::format("Host {}: not a name of this server; expected localhost, an address, or a "
                               "name of --allowed-hosts",
                               one_line(head.host)));
  } else {
    return false;
  }
  return true;
}

bool HttpSession::hold_body() {
  const size_t num_bytes = parser_->get().body().size();
  pool_.num_body_bytes += num_bytes - std::exchange(body_bytes_, num_bytes);
  return num_bytes <= kSmallBodyBytes ||
         pool_.num_body_bytes <= kLargestBodiesAtOnce * pool_.options.max_body_bytes;
}

void HttpSession::reject_request(int status, std::string_view message) {
  keep_alive_ = is_head_ = false;
  read_timer_.cancel();
  parser_->get().body() = {};
  exchange_ = std::make_shared<Answer>(shared_from_this());
  Headers headers;
  if (status == 503) headers.emplace_back("Retry-After", "1");
  const auto& target = parser_->get().target();
  HttpError error = pool_.options.make_error(status, message, path_of({target.data(), target.size()}));
  exchange_->reply(error.status, "application/json", std::move(error.body), headers);
}

void HttpSession::on_read_timeout() {
  if (!exchange_) reject_request(408, "the request did not arrive in time");
}

void HttpSession::dispatch_request() {
  MemoryReserve::restore();
  read_timer_.cancel();
  auto& message = parser_->get();
  http_1_0_ = message.version() < 11;
  keep_alive_ = message.keep_alive() && !pool_.closing;
  const auto header = [&](auto name) { return std::string(message[name]); };
  HttpRequest request;
  request.method = std::string(message.method_string());
  is_head_ = request.method == "HEAD";
  const std::string_view target(message.target().data(), message.target().size());
  request.path = path_of(target);
  const size_t mark = target.find('?');
  request.query = mark == target.npos ? "" : target.substr(mark + 1);
  request.authorization = header(http::field::authorization);
  request.api_key = header("x-api-key");
  request.content_type = header(http::field::content_type);
  request.request_id = one_line(header("x-request-id"));
  request.traceparent = one_line(header("traceparent"));
  request.has_anthropic_version = message.find("anthropic-version") != message.end();
  if (pool_.options.log_access) {
    method_ = request.method;
    path_ = request.path;
    request_id_ = request.request_id;
    received_at_ = std::chrono::steady_clock::now();
  }
  answer_bytes_ = 0;
  num_checks_ = 0;
  request.is_foreign = is_foreign_;
  request.body = std::move(message.body());
  exchange_ = std::make_shared<Answer>(shared_from_this());
  ++pool_.metrics.num_requests;
  ++pool_.metrics.num_active_requests;
  is_counted_ = true;
  read();
  const std::shared_ptr<Exchange> exchange = exchange_;
  run_guarded(*exchange, [&] { pool_.handler(std::move(request), exchange); });
}

void HttpSession::end_active() noexcept {
  if (is_counted_) --pool_.metrics.num_active_requests;
  is_counted_ = false;
}

void HttpSession::finish_answer() noexcept {
  if (!exchange_) return;
  end_active();
  exchange_ = nullptr;
  release_body();
  if (pool_.closing) keep_alive_ = false;
  answered_ = true;
  settle_later();
}

void HttpSession::try_log_access(int status) const noexcept try {
  if (!pool_.options.log_access || !parser_ || !parser_->is_done()) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - received_at_;
  JsonText line;
  line.begin_object().key("time").text(utc_time()).key("client").text(client_);
  line.key("access").text(method_ + " " + path_).key("status").integer(status);
  line.key("bytes").integer(static_cast<int64_t>(answer_bytes_)).key("seconds").number(seconds.count());
  if (!request_id_.empty()) line.key("id").text(request_id_);
  log_record(line.end_object().take());
} catch (const std::exception&) {  // out of memory for a log line
}

void HttpSession::linger() {
  constexpr std::chrono::seconds kLingerTimeout{2};
  lingering_ = true;
  transport_->end_sending([self = shared_from_this()] {
    if (self->input_ended_) self->close();
  });
  if (closed_) return;
  buffer_.consume(buffer_.size());
  arm(read_timer_, kLingerTimeout, &HttpSession::close);
  read();
}

template <class... Parts>
void HttpSession::send(const Parts&... parts) {
  if (closed_ || overrun_) return;
  const size_t num_new = (std::string_view(parts).size() + ...);
  if (unsent_.capacity() - unsent_.size() < num_new)
    unsent_.reserve(std::max(unsent_.size() + num_new, 2 * unsent_.capacity()));
  (unsent_.append(parts), ...);
  answer_bytes_ += num_new;
  // A response that is written in one call may have any size. Bytes that the client has not read must not
  // accumulate.
  overrun_ = writing_ && unsent_.size() > pool_.options.max_unsent_bytes;
  // Also if the connection must be closed: this runs within the call of a handler that still uses the
  // exchange.
  if (overrun_ || !writing_) settle_later();
}

int HttpSession::send_out_of_memory() noexcept {
  keep_alive_ = false;
  const auto& target = parser_->get().target();
  const std::string_view path(target.data(), target.size());
  const auto prepared = std::ranges::find_if(
      pool_.out_of_memory, [&](const auto& response) { return path.starts_with(response.path); });
  const std::string_view answer = prepared->response;
  // A connection keeps capacity for this response, unless it has just sent a long one.
  if (closed_ || unsent_.capacity() - unsent_.size() < answer.size()) return 0;
  send(is_head_ ? answer.substr(0, answer.find("\r\n\r\n") + 4) : answer);
  return prepared->status;
}

void HttpSession::settle_later() noexcept {
  pool_.unsettled.add(shared_from_this());
  pool_.wakeup.post();
}

void HttpSession::settle_all(SessionPool& pool) noexcept {
  IntrusiveList<HttpSession> now;  // sessions that are added while these run are settled later, after other
                                   // tasks
  now.swap(pool.unsettled);
  while (const std::shared_ptr<HttpSession> session = now.pop_front())
    session->guard([&] { session->settle(); });
}

void HttpSession::settle() {
  if (closed_) return;
  if (overrun_) return close();
  if (!writing_ && !unsent_.empty()) write();
  if (closed_ || !answered_) return;
  if (keep_alive_) {
    answered_ = false;
    await_request();
  } else if (!writing_ && !lingering_) {
    linger();
  }
}

// Most clients receive everything in one non-blocking write.
void HttpSession::write() {
  ++pool_.metrics.num_writes;
  Error error;
  const size_t num_written = transport_->write_now(asio::buffer(unsent_), error);
  if (error) return close();
  if (num_written < unsent_.size()) return write_rest(num_written);
  // An idle connection keeps a buffer for events, not for a long response.
  unsent_.clear();
  if (unsent_.capacity() > kMaxIdleBytes) unsent_ = {};
}

void HttpSession::write_rest(size_t num_written) {
  writing_ = true;
  sending_.swap(unsent_);
  write_piece(num_written);
}

// Writes in pieces, so that a client that reads slowly, but reads, is not disconnected.
void HttpSession::write_piece(size_t begin) {
  constexpr size_t kPieceBytes = 64 << 10;
  const size_t end = std::min(sending_.size(), begin + kPieceBytes);
  arm(write_timer_, pool_.options.write_timeout, &HttpSession::close);
  transport_->write_all(asio::buffer(sending_.data() + begin, end - begin),
                        [self = shared_from_this(), end](Error error, size_t) {
                          self->write_timer_.cancel();
                          if (self->closed_ || error) {
                            self->writing_ = false;
                            return self->close();
                          }
                          if (end < self->sending_.size())
                            return self->guard([&] { self->write_piece(end); });
                          self->writing_ = false;
                          self->sending_ = {};
                          self->settle_later();
                        });
}

// The end of a client's bytes does not show whether it has exited or waits for the answer, and a full buffer
// hides that end. TCP reports an exited client when it receives bytes: "100 Continue" has no meaning here,
// and clients ignore it. An answer that has started sends bytes itself.
void HttpSession::watch_client() {
  constexpr std::chrono::milliseconds kInterval{100};
  if (watching_ || closed_) return;
  watching_ = true;
  watch_timer_.expires_after(kInterval);
  watch_timer_.async_wait([weak = weak_from_this()](Error error) {
    const auto session = weak.lock();
    if (error || !session) return;
    session->watching_ = false;
    session->guard([&] { session->probe_client(); });
  });
}

void HttpSession::probe_client() {
  const bool is_hidden = input_ended_ || buffer_.size() >= kMaxPipelinedBytes;
  if (closed_ || !exchange_ || !is_hidden) return;
  if (transport_->is_peer_gone()) return close();
  constexpr int kChecksPerProbe = 20;
  if (num_checks_++ % kChecksPerProbe == 0 && !exchange_->has_started() && !http_1_0_)
    send("HTTP/1.1 100 Continue\r\n\r\n");
  watch_client();
}

void HttpSession::close() noexcept {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();
  watch_timer_.cancel();
  read_timer_.cancel();
  write_timer_.cancel();
  transport_->close();
  if (exchange_) {
    end_active();
    std::exchange(exchange_, nullptr)->disconnect();
  }
  release_body();
  pool_.sessions.erase(self);
}

}  // namespace attend::serve
