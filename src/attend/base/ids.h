// Strong integer ids. Each wraps one int32 and has no implicit conversions: a token slot cannot be passed
// instead of a page. Only pools translate between ids (attend/kv). Kernels read the arrays as int32 (a span
// of ids and a span of int32 have the same bytes).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <type_traits>

#pragma GCC visibility push(default)
namespace attend {

template <class Tag>
struct Id {
  int32_t value = 0;

  constexpr Id() = default;
  constexpr explicit Id(int32_t v) : value(v) {}
  constexpr auto operator<=>(const Id&) const = default;
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << id.value; }
};

// Index of one token's K/V in a KV pool. Slots 0..page_size-1 are the padding page, always zero; -1: no slot.
using TokenSlot = Id<struct TokenSlotTag>;
// page_size consecutive token slots: page id = slot / page_size. Page 0 is the padding page.
using PageId = Id<struct PageIdTag>;
// Index of one token's K/V in the sliding-window half of a Swa pool.
using SwaSlot = Id<struct SwaSlotTag>;
// Row of ReqToTokenPool. Row 0 is the padding row.
using RequestRow = Id<struct RequestRowTag>;

// True if T is one of these ids.
template <class T>
inline constexpr bool kIsId = false;
template <class Tag>
inline constexpr bool kIsId<Id<Tag>> = true;

inline constexpr TokenSlot kNoSlot{-1};
inline constexpr RequestRow kPaddingRow{0};

// Returns the same ids as int32, the type that kernels use.
template <class Tag>
std::span<const int32_t> raw(std::span<const Id<Tag>> ids) {
  static_assert(sizeof(Id<Tag>) == sizeof(int32_t) && std::is_standard_layout_v<Id<Tag>>);
  return {reinterpret_cast<const int32_t*>(ids.data()), ids.size()};
}

static_assert(sizeof(TokenSlot) == sizeof(int32_t) && std::is_trivially_copyable_v<TokenSlot>);

}  // namespace attend

template <class Tag>
struct std::hash<attend::Id<Tag>> {
  size_t operator()(attend::Id<Tag> id) const noexcept { return std::hash<int32_t>{}(id.value); }
};
#pragma GCC visibility pop
