// One connection: reads requests, hands them on one at a time, and writes answers. A read is always pending,
// so that a client who goes is noticed at once.
#pragma once

#include <utility>
//
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <unordered_set>
#include <vector>

#include "attend/serve/http/head_text.h"
#include "attend/serve/http/http_server.h"
#include "attend/serve/http/intrusive_list.h"
#include "attend/serve/http/transport.h"
#include "attend/serve/http/wakeup.h"

namespace attend::serve {

class HttpSession;

// What sessions share; of the I/O thread.
struct SessionPool {
  explicit SessionPool(boost::asio::io_context& io) : wakeup(io) {}

  HttpOptions options;
  std::shared_ptr<TlsContext> tls;  // null: connections are plain
  HttpServer::Handler handler;
  std::string out_of_memory;  // an answer, its head and body
  std::unordered_set<std::shared_ptr<HttpSession>> sessions;
  // With something to write or to begin. They do so when what runs has ended, so that each writes all of it
  // at once, and requests in a row do not nest.
  IntrusiveList<HttpSession> unsettled;
  Wakeup wakeup;  // settles them
  HttpMetrics metrics;
  size_t num_body_bytes = 0;  // of requests that come or are being answered
  bool closing = false;       // each answer is the last of its connection
};

class HttpSession : public ListHook<HttpSession>, public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(Transport::Socket socket, SessionPool& pool);
  void start() noexcept;
  // Drops the connection.
  void close() noexcept;
  static void settle_all(SessionPool& pool) noexcept;
  // Whether a request is being answered, or an answer being sent.
  bool is_busy() const { return exchange_ != nullptr || writing_ || !unsent_.empty(); }

 private:
  class Answer;
  using Error = boost::system::error_code;

  // What throws, as there is no memory, drops this connection and no other.
  template <class Task>
  void guard(Task&& task) noexcept;
  void await_request();
  void read();
  void on_read(Error error, size_t num_bytes);
  // Parses what has come, up to a whole request.
  void parse();
  void dispatch_request();
  // Counts what has come of the body. False: with those of other requests it is too much.
  bool hold_body();
  void release_body() noexcept { pool_.num_body_bytes -= std::exchange(body_bytes_, 0); }
  void refuse_request(int status, std::string_view message);
  // The bytes in their order, with those of other calls; see SessionPool::unsettled. All of them, or it
  // throws.
  template <class... Parts>
  void send(const Parts&... parts);
  // False: there is no room for it.
  bool send_out_of_memory() noexcept;
  void settle_later() noexcept;
  void settle();
  void write();
  void write_rest(size_t num_written);
  void write_piece(size_t begin);
  void uncount() noexcept;
  void finish_answer() noexcept;
  // Of the request in hand, which ends; `status`: of the answer.
  void try_log_access(int status) const noexcept;
  // Ends the connection when the client has read the last answer: what it still sends must not reset it
  // before.
  void linger();
  void arm(boost::asio::steady_timer& timer, std::chrono::milliseconds delay, void (HttpSession::*on_time)());
  void on_read_timeout();
  std::string head_of(int status, std::string_view content_type, const Headers& headers) const {
    return answer_head(status, content_type, headers, pool_.options.cors_origins, keep_alive_);
  }

  SessionPool& pool_;
  std::unique_ptr<Transport> transport_;
  boost::asio::steady_timer read_timer_, write_timer_;
  boost::beast::flat_buffer buffer_;  // what has come, and was not parsed
  // What is being read. Not in the buffer: parsing what is there moves what is behind, and a read is always
  // pending.
  std::vector<char> incoming_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::shared_ptr<Answer> exchange_;  // the request that is being answered
  bool is_counted_ = false;           // among active requests: what was read whole, and not refused
  std::string unsent_, sending_;      // sending_: what the client has not taken at once
  bool overrun_ = false;              // the client reads too slowly, and is about to be dropped
  bool reading_ = false, writing_ = false, lingering_ = false, closed_ = false;
  // Of the request in hand, for the access log.
  std::string method_, path_, request_id_;
  std::chrono::steady_clock::time_point received_at_;
  size_t answer_bytes_ = 0;
  size_t body_bytes_ = 0;  // its part of the pool's
  bool keep_alive_ = true, is_head_ = false, http_1_0_ = false;
  bool answered_ = false;   // the request in hand, so that the next may be read
  bool started_ = false;    // a part of a request has come
  bool continued_ = false;  // it was told to go on
};

}  // namespace attend::serve
