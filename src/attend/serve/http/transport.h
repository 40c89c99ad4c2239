// Transport: bytes of one connection, plain or over TLS.
#pragma once

#include <utility>
//
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <functional>
#include <memory>

#include "attend/serve/http/http_server.h"

namespace attend::serve {

// Used on the I/O thread. One read, one write and one start() or end_sending() may be pending at the same
// time. The caller keeps the transport alive until they are complete.
class Transport {
 public:
  using Error = boost::system::error_code;
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Done = std::function<void(Error, size_t num_bytes)>;

  virtual ~Transport() = default;
  virtual boost::asio::any_io_executor executor() = 0;
  // Prepares reading and writing; for TLS, performs the handshake.
  virtual void start(std::function<void(Error)> done) = 0;
  virtual void read_some(boost::asio::mutable_buffer into, Done done) = 0;
  // Writes without blocking. Returns the number of bytes written, possibly 0.
  virtual size_t write_now(boost::asio::const_buffer bytes, Error& error) = 0;
  // `bytes` must stay valid until `done` is called.
  virtual void write_all(boost::asio::const_buffer bytes, Done done) = 0;
  // Signals the end of the data to the client, which may still send.
  virtual void end_sending(std::function<void()> done) = 0;
  // Returns the address and port of the client, or "unix".
  virtual std::string client() = 0;
  // Returns true if the client has closed or reset the connection, even if reads have not reached that.
  virtual bool is_peer_gone() = 0;
  // Closes the connection. Pending operations complete with an error.
  virtual void close() = 0;
};

class TlsContext;

// Returns null without files. Throws Error(kInvalidArgument) that names the flag, for files that cannot be
// used.
std::shared_ptr<TlsContext> make_tls_context(const TlsOptions& options);
// `tls`: null for a plain connection.
std::unique_ptr<Transport> make_transport(Transport::Socket socket, const std::shared_ptr<TlsContext>& tls);

}  // namespace attend::serve
