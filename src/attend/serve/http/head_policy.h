// Checks of request heads: required headers, hosts, and origins of web pages.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attend::serve {

// Headers of a request, as far as the checks need them. An absent header is empty.
struct HeadFields {
  bool http_1_0 = false;
  size_t num_hosts = 0;             // number of Host headers
  std::string_view host;            // of an absolute target, otherwise the header
  std::string_view origin;          // "https://chat.example"; sent by browsers only
  std::string_view sec_fetch_site;  // "same-origin", "cross-site", ...; sent by browsers only
  std::string_view expect;
  std::string_view transfer_encoding;
  std::string_view content_encoding;
};

struct HeadError {
  int status;
  std::string message;
};

// Returns the error of a head that HTTP does not allow or that the server does not support (RFC 9110, 9112):
// 400 for a missing, repeated or malformed Host, 415 for an encoded body, 417 for an unknown expectation, 501
// for a transfer coding other than chunked.
std::optional<HeadError> check_head(const HeadFields& head);

// Hosts to which requests may be addressed. Web pages can send requests to a local server under a name of
// their own, which their DNS server resolves to 127.0.0.1; such a name is rejected.
class AllowedHosts {
 public:
  // `names`: host names, "*.example.com" for subdomains, or "*" for any. `is_loopback`: the server accepts
  // local connections only. Without names, such a server accepts IP addresses, localhost and names without a
  // dot, and any other server accepts all hosts.
  AllowedHosts(std::vector<std::string> names, bool is_loopback);

  // `host`: value of the header, with or without a port. An empty host is accepted.
  bool accept(std::string_view host) const;

 private:
  std::vector<std::string> names_;
  bool accepts_all_;
};

// Origins of web pages that may send requests, in addition to the server's own.
class AllowedOrigins {
 public:
  // `origins`: "https://chat.example", or "*" for all.
  explicit AllowedOrigins(std::vector<std::string> origins = {});

  bool empty() const { return origins_.empty(); }
  // Returns the value of Access-Control-Allow-Origin for a request; empty: no such header.
  std::string_view header_for(std::string_view origin) const;
  // Returns true for a request of a web page that is neither listed nor the server's own.
  bool is_foreign(const HeadFields& head) const;

 private:
  std::vector<std::string> origins_;
  bool accepts_all_ = false;
};

}  // namespace attend::serve
