// HttpSession: one connection. It reads requests, passes them to the handler one at a time, and writes
// responses. A read is always pending, so that a disconnect is noticed immediately.
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

#include "attend/serve/http/head_policy.h"
#include "attend/serve/http/head_text.h"
#include "attend/serve/http/http_server.h"
#include "attend/serve/http/intrusive_list.h"
#include "attend/serve/http/transport.h"
#include "attend/serve/http/wakeup.h"

namespace attend::serve {

class HttpSession;

// State shared by all sessions. Used on the I/O thread.
struct SessionPool {
  explicit SessionPool(boost::asio::io_context& io) : wakeup(io) {}

  HttpOptions options;
  std::shared_ptr<TlsContext> tls;  // null: not encrypted
  AllowedOrigins origins;
  std::optional<AllowedHosts> hosts;  // none: any host
  HttpServer::Handler handler;
  // Preallocated responses, head and body, of requests for which there is no memory. The first one with a
  // path that begins the request's path is sent; the last one has no path.
  struct OutOfMemory {
    std::string path;
    int status;
    std::string response;
  };
  std::vector<OutOfMemory> out_of_memory;
  std::unordered_set<std::shared_ptr<HttpSession>> sessions;
  // Sessions with bytes to write or a request to start. They are handled after the running task, so that each
  // session writes all its bytes in one call and consecutive requests do not recurse.
  IntrusiveList<HttpSession> unsettled;
  Wakeup wakeup;  // settles the sessions
  HttpMetrics metrics;
  size_t num_body_bytes = 0;  // body bytes of requests that are being received or answered
  bool closing = false;       // each connection is closed after its current response
};

class HttpSession : public ListHook<HttpSession>, public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(Transport::Socket socket, SessionPool& pool);
  void start() noexcept;
  // Closes the connection.
  void close() noexcept;
  static void settle_all(SessionPool& pool) noexcept;
  // True if a request is being answered or a response is being sent.
  bool is_busy() const { return exchange_ != nullptr || writing_ || !unsent_.empty(); }

 private:
  class Answer;
  using Error = boost::system::error_code;

  // Runs a task. An exception (out of memory) closes this connection only.
  template <class Task>
  void guard(Task&& task) noexcept;
  void await_request();
  void read();
  void on_read(Error error, size_t num_bytes);
  // Watches for a disconnect that no read would report: the client has ended its side and waits for the
  // answer, or no further requests are read because enough are queued.
  void watch_client();
  void probe_client();
  // Parses received bytes, up to one complete request.
  void parse();
  // Rejects a request with a complete head that is not acceptable; see check_head(). Returns whether it did.
  bool reject_head();
  void dispatch_request();
  // Closes the connection after what was sent has been written.
  void end_connection();
  // Counts the received bytes of the body. Returns false if they exceed the limit together with the bodies of
  // other requests.
  bool hold_body();
  void release_body() noexcept { pool_.num_body_bytes -= std::exchange(body_bytes_, 0); }
  void reject_request(int status, std::string_view message);
  // Appends bytes to those of other calls, in order; see SessionPool::unsettled. Appends all parts or throws.
  template <class... Parts>
  void send(const Parts&... parts);
  // Returns the status of the response, or 0 if the buffer has no capacity for it.
  int send_out_of_memory() noexcept;
  void settle_later() noexcept;
  void settle();
  void write();
  void write_rest(size_t num_written);
  void write_piece(size_t begin);
  void end_active() noexcept;
  void finish_answer() noexcept;
  // Logs the current request, which is complete. `status`: of the response.
  void try_log_access(int status) const noexcept;
  // Closes the connection after the client has read the last response. Closing it earlier, while the client
  // still sends, would reset it.
  void linger();
  void arm(boost::asio::steady_timer& timer, std::chrono::milliseconds delay, void (HttpSession::*on_time)());
  void on_read_timeout();
  std::string make_head(int status, std::string_view content_type, const Headers& headers) const {
    return answer_head(status, content_type, headers, pool_.origins.header_for(origin_), keep_alive_);
  }

  SessionPool& pool_;
  std::unique_ptr<Transport> transport_;
  boost::asio::steady_timer read_timer_, write_timer_, watch_timer_;
  boost::beast::flat_buffer buffer_;  // received and not parsed yet
  // Target of the pending read. It is separate from buffer_, since parsing moves the bytes of buffer_.
  std::vector<char> incoming_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::shared_ptr<Answer> exchange_;  // request that is being answered
  bool is_counted_ = false;           // counted among active requests: read completely and not rejected
  std::string unsent_, sending_;      // sending_: bytes that the first non-blocking write did not accept
  bool overrun_ = false;              // the client reads too slowly and is about to be disconnected
  bool reading_ = false, writing_ = false, lingering_ = false, closed_ = false;
  bool input_ended_ = false;  // the client has ended its side of the connection
  bool watching_ = false;     // watch_timer_ is pending
  int num_checks_ = 0;        // by probe_client(), for the current request
  std::string origin_;        // Origin of the current request
  bool is_foreign_ = false;   // origin_ is not allowed
  // Fields of the current request for the access log.
  std::string client_, method_, path_, request_id_;
  std::chrono::steady_clock::time_point received_at_;
  size_t answer_bytes_ = 0;
  size_t body_bytes_ = 0;  // its share of the pool's num_body_bytes
  bool keep_alive_ = true, is_head_ = false, http_1_0_ = false;
  bool answered_ = false;   // the current request was answered, so that the next one may be read
  bool started_ = false;    // part of a request has arrived
  bool continued_ = false;  // "100 Continue" was sent
};

}  // namespace attend::serve
