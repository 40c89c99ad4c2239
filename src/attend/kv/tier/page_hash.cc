#include "attend/kv/tier/page_hash.h"

#include <openssl/sha.h>

namespace attend {

std::string PageHash::hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

PageHash sha256(std::string_view bytes) {
  PageHash hash;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), hash.bytes.data());
  return hash;
}

PageHash hash_root(const PageHash& identity, std::string_view salt) {
  std::string bytes(identity.bytes.begin(), identity.bytes.end());
  bytes += salt;
  return sha256(bytes);
}

PageHash hash_page(const PageHash& parent, View<const int32_t> keys) {
  // 4 bytes per key, little-endian like all machines that attend supports.
  std::string bytes(parent.bytes.begin(), parent.bytes.end());
  bytes.append(reinterpret_cast<const char*>(keys.data()), keys.size() * sizeof(int32_t));
  return sha256(bytes);
}

}  // namespace attend
