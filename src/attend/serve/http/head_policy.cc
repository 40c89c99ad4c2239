#include "attend/serve/http/head_policy.h"

#include <algorithm>
#include <utility>

namespace attend::serve {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  return result;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Removes the port and a final dot: "a.example.:80" becomes "a.example", "[::1]:80" becomes "[::1]".
std::string_view without_port(std::string_view host) {
  const size_t colon = host.starts_with('[') ? host.find(':', host.find(']')) : host.find(':');
  std::string_view name = host.substr(0, colon);
  if (name.ends_with('.')) name.remove_suffix(1);
  return name;
}

// Returns true for the characters of RFC 3986's host and port. Excludes user names, which have an '@'.
bool is_well_formed(std::string_view host) {
  constexpr std::string_view kOthers = "-._~!$&'()*+,;=:[]%";
  return std::ranges::all_of(host, [&](char c) {
    return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || kOthers.find(c) != kOthers.npos;
  });
}

// DNS does not resolve addresses, nor names without a dot, except in the local network.
bool is_local_name(std::string_view name) {
  const bool is_address =
      name.starts_with('[') || std::ranges::all_of(name, [](char c) { return is_digit(c) || c == '.'; });
  return is_address || name.find('.') == name.npos || name.ends_with(".localhost");
}

std::string_view authority(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme == origin.npos ? std::string_view() : origin.substr(scheme + 3);
}

// Removes the default port of either scheme, since a proxy may terminate TLS.
std::string_view without_default_port(std::string_view host) {
  for (const std::string_view port : {":80", ":443"})
    if (host.ends_with(port)) return host.substr(0, host.size() - port.size());
  return host;
}

}  // namespace

std::optional<HeadError> check_head(const HeadFields& head) {
  if (head.num_hosts > 1 || (head.num_hosts == 0 && !head.http_1_0))
    return HeadError{400,
                     "the request has " + std::to_string(head.num_hosts) + " Host headers: expected one"};
  if (!is_well_formed(head.host)) return HeadError{400, "Host: expected a host name or address, and a port"};
  if (!head.transfer_encoding.empty()) {
    if (head.http_1_0) return HeadError{400, "Transfer-Encoding: not in an HTTP/1.0 request"};
    if (lower(head.transfer_encoding) != "chunked")
      return HeadError{501, "Transfer-Encoding: expected chunked"};
  }
  if (!head.http_1_0 && !head.expect.empty() && lower(head.expect) != "100-continue")
    return HeadError{417, "Expect: expected 100-continue"};
  if (!head.content_encoding.empty() && lower(head.content_encoding) != "identity")
    return HeadError{415, "Content-Encoding: a compressed body is not supported; expected identity"};
  return std::nullopt;
}

AllowedHosts::AllowedHosts(std::vector<std::string> names, bool is_loopback)
    : names_(std::move(names)), accepts_all_(names_.empty() && !is_loopback) {
  for (std::string& name : names_) {
    name = lower(without_port(name));
    accepts_all_ |= name == "*";
  }
}

bool AllowedHosts::accept(std::string_view host) const {
  const std::string name = lower(without_port(host));
  if (accepts_all_ || is_local_name(name)) return true;
  return std::ranges::any_of(names_, [&](const std::string& allowed) {
    return allowed.starts_with("*.") ? name.ends_with(std::string_view(allowed).substr(1)) : name == allowed;
  });
}

AllowedOrigins::AllowedOrigins(std::vector<std::string> origins) : origins_(std::move(origins)) {
  for (std::string& origin : origins_) {
    origin = lower(origin);
    while (origin.ends_with('/')) origin.pop_back();
    accepts_all_ |= origin == "*";
  }
}

std::string_view AllowedOrigins::header_for(std::string_view origin) const {
  if (accepts_all_) return "*";
  if (origins_.size() == 1) return origins_.front();
  const auto found = std::ranges::find(origins_, lower(origin));
  return found == origins_.end() ? std::string_view() : *found;
}

bool AllowedOrigins::is_foreign(const HeadFields& head) const {
  if (head.origin.empty() || accepts_all_ || head.sec_fetch_site == "same-origin") return false;
  const std::string origin = lower(head.origin);
  if (std::ranges::find(origins_, origin) != origins_.end()) return false;
  const std::string_view own = authority(origin);
  return own.empty() || without_default_port(own) != without_default_port(lower(head.host));
}

}  // namespace attend::serve
