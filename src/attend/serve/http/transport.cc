#include "attend/serve/http/transport.h"

#include <openssl/err.h>
#include <openssl/x509err.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "attend/base/error.h"

namespace attend::serve {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;

class TlsContext {
 public:
  explicit TlsContext(const TlsOptions& options) : context(ssl::context::tls_server) {
    SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
    bool is_encrypted = false;
    // Without a callback, OpenSSL would prompt for a password on the terminal.
    context.set_password_callback([&is_encrypted, password = options.key_password](size_t, auto) {
      is_encrypted = true;
      return password;
    });
    Transport::Error error;
    require_readable("--ssl-certfile", options.certificate_file);
    context.use_certificate_chain_file(options.certificate_file, error);
    require_pem(error, "--ssl-certfile", options.certificate_file, "certificates");
    require_readable("--ssl-keyfile", options.key_file);
    context.use_private_key_file(options.key_file, ssl::context::pem, error);
    require(!is_mismatch(error), "--ssl-keyfile ", options.key_file, ": not the key of --ssl-certfile ",
            options.certificate_file);
    if (error && is_encrypted)
      fail(ErrorCode::kInvalidArgument, "--ssl-keyfile ", options.key_file,
           options.key_password.empty() ? ": the key is encrypted: expected --ssl-keyfile-password"
                                        : ": --ssl-keyfile-password is not the password of the key");
    require_pem(error, "--ssl-keyfile", options.key_file, "a private key");
    // The callback refers to this function's variable.
    context.set_password_callback([](size_t, auto) { return std::string(); });
    if (options.client_authority_file.empty()) return;
    require_readable("--ssl-ca-certs", options.client_authority_file);
    context.load_verify_file(options.client_authority_file, error);
    require_pem(error, "--ssl-ca-certs", options.client_authority_file, "certificates");
    context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  }

  ssl::context context;

 private:
  static void require_readable(std::string_view flag, const std::string& path) {
    std::error_code ignored;
    require(!std::filesystem::is_directory(path, ignored), flag, " ", path,
            ": is a directory: expected a file");
    require(access(path.c_str(), R_OK) == 0, flag, " ", path, ": cannot be read: ", std::strerror(errno));
  }
  static bool is_mismatch(const Transport::Error& error) {
    const auto code = static_cast<unsigned long>(error.value());
    return error && ERR_GET_LIB(code) == ERR_LIB_X509 && ERR_GET_REASON(code) == X509_R_KEY_VALUES_MISMATCH;
  }
  static void require_pem(const Transport::Error& error, std::string_view flag, const std::string& path,
                          std::string_view contents) {
    if (error)
      fail(ErrorCode::kInvalidArgument, flag, " ", path, ": expected a PEM file with ", contents, ": ",
           error.message());
  }
};

namespace {

bool has_hung_up(int descriptor) {
  pollfd state{descriptor, 0, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLERR)) != 0;
}

std::string client_address(const Transport::Socket& socket) {
  Transport::Error error;
  const auto remote = socket.remote_endpoint(error);
  const int family = error ? AF_UNSPEC : remote.protocol().family();
  if (family != AF_INET && family != AF_INET6) return family == AF_UNIX ? "unix" : "";
  asio::ip::tcp::endpoint endpoint;
  std::memcpy(endpoint.data(), remote.data(), std::min(remote.size(), endpoint.capacity()));
  const std::string host = endpoint.address().to_string();
  return (family == AF_INET6 ? "[" + host + "]" : host) + ":" + std::to_string(endpoint.port());
}

class PlainTransport : public Transport {
 public:
  // The socket is non-blocking, so that write_now() returns immediately.
  explicit PlainTransport(Socket socket) : socket_(std::move(socket)) {
    Error ignored;
    socket_.non_blocking(true, ignored);
  }

  asio::any_io_executor executor() override { return socket_.get_executor(); }
  void start(std::function<void(Error)> done) override { done({}); }
  void read_some(asio::mutable_buffer into, Done done) override {
    socket_.async_read_some(into, std::move(done));
  }
  size_t write_now(asio::const_buffer bytes, Error& error) override {
    const size_t num_written = socket_.write_some(bytes, error);
    if (error == asio::error::would_block || error == asio::error::try_again) error = {};
    return num_written;
  }
  void write_all(asio::const_buffer bytes, Done done) override {
    asio::async_write(socket_, bytes, std::move(done));
  }
  void end_sending(std::function<void()> done) override {
    Error ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    done();
  }
  std::string client() override { return client_address(socket_); }
  bool is_peer_gone() override { return has_hung_up(socket_.native_handle()); }
  void close() override {
    Error ignored;
    socket_.shutdown(Socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

 private:
  Socket socket_;
};

class TlsTransport : public Transport {
 public:
  TlsTransport(Socket socket, std::shared_ptr<TlsContext> tls)
      : tls_(std::move(tls)), stream_(std::move(socket), tls_->context) {}

  asio::any_io_executor executor() override { return stream_.get_executor(); }
  void start(std::function<void(Error)> done) override {
    stream_.async_handshake(ssl::stream_base::server, std::move(done));
  }
  void read_some(asio::mutable_buffer into, Done done) override {
    stream_.async_read_some(into, std::move(done));
  }
  size_t write_now(asio::const_buffer, Error&) override { return 0; }
  void write_all(asio::const_buffer bytes, Done done) override {
    asio::async_write(stream_, bytes, std::move(done));
  }
  void end_sending(std::function<void()> done) override {
    stream_.async_shutdown([done = std::move(done)](Error) { done(); });
  }
  std::string client() override { return client_address(stream_.next_layer()); }
  bool is_peer_gone() override { return has_hung_up(stream_.next_layer().native_handle()); }
  void close() override {
    Error ignored;
    stream_.next_layer().shutdown(Socket::shutdown_both, ignored);
    stream_.next_layer().close(ignored);
  }

 private:
  std::shared_ptr<TlsContext> tls_;
  ssl::stream<Socket> stream_;
};

}  // namespace

std::shared_ptr<TlsContext> make_tls_context(const TlsOptions& options) {
  require(options.key_file.empty() == options.certificate_file.empty(),
          "--ssl-keyfile and --ssl-certfile: expected both, or none");
  require(!options.certificate_file.empty() || options.client_authority_file.empty(),
          "--ssl-ca-certs: only with --ssl-certfile");
  require(!options.key_file.empty() || options.key_password.empty(),
          "--ssl-keyfile-password: only with --ssl-keyfile");
  return options.certificate_file.empty() ? nullptr : std::make_shared<TlsContext>(options);
}

std::unique_ptr<Transport> make_transport(Transport::Socket socket, const std::shared_ptr<TlsContext>& tls) {
  if (tls) return std::make_unique<TlsTransport>(std::move(socket), tls);
  return std::make_unique<PlainTransport>(std::move(socket));
}

}  // namespace attend::serve
