// PageHash: identifies the content of a cached page by its tokens and all tokens before it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "attend/tensor/tensor.h"

namespace attend {

// SHA-256, since prompts are untrusted and several servers may share stored pages: equal hashes are taken for
// equal content.
struct PageHash {
  std::array<uint8_t, 32> bytes = {};

  bool operator==(const PageHash&) const = default;
  // 64 lowercase hexadecimal digits.
  std::string hex() const;
};

// SHA-256 of bytes.
PageHash sha256(std::string_view bytes);
// Hash of the empty prefix. `identity`: everything besides tokens that the bytes of K/V depend on.
PageHash hash_root(const PageHash& identity, std::string_view salt);
// Hash of the page with these keys (PrefixCache) after the page or root `parent`.
PageHash hash_page(const PageHash& parent, View<const int32_t> keys);

}  // namespace attend

template <>
struct std::hash<attend::PageHash> {
  size_t operator()(const attend::PageHash& page) const noexcept {
    size_t value;
    std::memcpy(&value, page.bytes.data(), sizeof(value));
    return value;
  }
};
