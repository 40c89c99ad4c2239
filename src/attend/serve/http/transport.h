// The bytes of one connection, plain or under TLS.
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

// Of the I/O thread. One read, one write and one of start() and end_sending() may be under way at once;
// whoever asks for them keeps the transport alive until they are done.
class Transport {
 public:
  using Error = boost::system::error_code;
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Done = std::function<void(Error, size_t num_bytes)>;

  virtual ~Transport() = default;
  virtual boost::asio::any_io_executor executor() = 0;
  // Makes it ready to read and write; under TLS that is the handshake.
  virtual void start(std::function<void(Error)> done) = 0;
  virtual void read_some(boost::asio::mutable_buffer into, Done done) = 0;
  // As much as goes without waiting, which may be none; how much that was.
  virtual size_t write_now(boost::asio::const_buffer bytes, Error& error) = 0;
  // `bytes` stay where they are until it is done.
  virtual void write_all(boost::asio::const_buffer bytes, Done done) = 0;
  // The client is told that nothing more comes, and may still send.
  virtual void end_sending(std::function<void()> done) = 0;
  // Drops the connection; what is under way ends with an error.
  virtual void close() = 0;
};

class TlsContext;

// Throws Error(kInvalidArgument) for files that can not be used, naming the flag. Null where there are none.
std::shared_ptr<TlsContext> make_tls_context(const TlsOptions& options);
// `tls`: null for a plain one.
std::unique_ptr<Transport> make_transport(Transport::Socket socket, const std::shared_ptr<TlsContext>& tls);

}  // namespace attend::serve
