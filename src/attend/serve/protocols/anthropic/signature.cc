#include "attend/serve/protocols/anthropic/signature.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <new>

namespace attend::serve {
namespace {

constexpr std::string_view kPrefix = "attend1.";

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string to_base64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // OpenSSL appends a zero byte
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes_of(bytes),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes(3 * (text.size() / 4), '\0');
  if (text.size() % 4 != 0 || EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()), bytes_of(text),
                                              static_cast<int>(text.size())) < 0)
    return std::nullopt;
  const auto num_padding = static_cast<size_t>(std::ranges::count(text.substr(text.size() - 2), '='));
  bytes.resize(bytes.size() - num_padding);
  return bytes;
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
    std::optional<std::string> contained = from_base64(signature.substr(dot + 1));
    if (!contained) return std::nullopt;
    thinking = std::move(*contained);
  }
  if (signature.substr(0, dot) != checksum(thinking)) return std::nullopt;
  return thinking;
}

}  // namespace attend::serve
