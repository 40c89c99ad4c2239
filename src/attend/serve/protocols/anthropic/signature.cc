#include "attend/serve/protocols/anthropic/signature.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <new>

#include "attend/serve/json/base64.h"

namespace attend::serve {
namespace {

constexpr std::string_view kPrefix = "attend1.";

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string to_base64(std::string_view bytes) {
  std::string text;
  append_base64(bytes, text);
  return text;
}

std::string checksum(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  if (!SHA256(bytes_of(text), text.size(), digest.data())) throw std::bad_alloc();
  return to_base64({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

}  // namespace

std::string sign_thinking(std::string_view text, bool with_text) {
  std::string signature(kPrefix);
  signature += checksum(text);
  if (with_text) (signature += '.') += to_base64(text);
  return signature;
}

std::optional<std::string> signed_thinking(std::string_view text, std::string_view signature) {
  if (!signature.starts_with(kPrefix)) return std::nullopt;
  signature.remove_prefix(kPrefix.size());
  const size_t dot = std::min(signature.find('.'), signature.size());
  std::string thinking(text);
  if (text.empty() && dot + 1 < signature.size()) {
    std::optional<std::string> contained = decode_base64(signature.substr(dot + 1));
    if (!contained) return std::nullopt;
    thinking = std::move(*contained);
  }
  if (signature.substr(0, dot) != checksum(thinking)) return std::nullopt;
  return thinking;
}

}  // namespace attend::serve
