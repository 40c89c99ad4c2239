#include "attend/media/content_hash.h"

#include <openssl/evp.h>

#include "attend/base/error.h"

namespace attend {

ContentHash content_hash(std::initializer_list<std::span<const std::byte>> parts) {
  ContentHash hash{};
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  bool ok = context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1;
  for (const std::span<const std::byte> part : parts)
    ok = ok && EVP_DigestUpdate(context, part.data(), part.size()) == 1;
  ok = ok && EVP_DigestFinal_ex(context, hash.data(), nullptr) == 1;
  EVP_MD_CTX_free(context);
  ensure(ok, "SHA-256 failed");
  return hash;
}

}  // namespace attend
