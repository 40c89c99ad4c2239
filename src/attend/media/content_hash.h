// ContentHash: SHA-256 of media, by which encoded items are found again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#pragma GCC visibility push(default)
namespace attend {

using ContentHash = std::array<uint8_t, 32>;

// Returns the hash of the concatenated parts.
ContentHash content_hash(std::initializer_list<std::span<const std::byte>> parts);

}  // namespace attend
#pragma GCC visibility pop
