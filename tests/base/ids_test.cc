#include "attend/base/ids.h"

#include <gtest/gtest.h>

#include <concepts>
#include <cstring>
#include <sstream>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace attend {
namespace {

// Compile-time checks: ids do not convert to other types.
template <class From, class To>
constexpr bool kNotConvertible = !std::is_convertible_v<From, To> && !std::is_constructible_v<To, From> &&
                                 !std::is_assignable_v<To&, From>;
static_assert(kNotConvertible<TokenSlot, PageId> && kNotConvertible<PageId, TokenSlot>);
static_assert(kNotConvertible<TokenSlot, SwaSlot> && kNotConvertible<SwaSlot, TokenSlot>);
static_assert(kNotConvertible<TokenSlot, RequestRow> && kNotConvertible<RequestRow, PageId>);
static_assert(kNotConvertible<TokenSlot, int32_t> && kNotConvertible<PageId, int64_t> &&
              kNotConvertible<RequestRow, bool>);
static_assert(!std::is_convertible_v<int32_t, TokenSlot> && !std::is_assignable_v<TokenSlot&, int32_t>);
static_assert(std::is_constructible_v<TokenSlot, int32_t>);  // only explicitly: TokenSlot(5)

template <class A, class B>
concept Comparable = requires(A a, B b) {
  a == b;
};
static_assert(Comparable<TokenSlot, TokenSlot> && !Comparable<TokenSlot, PageId> &&
              !Comparable<TokenSlot, int32_t>);
template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
static_assert(!Addable<TokenSlot, int32_t> && !Addable<TokenSlot, TokenSlot>);

static_assert(kIsId<TokenSlot> && kIsId<RequestRow> && !kIsId<int32_t> && !kIsId<float>);

TEST(Ids, CompareAndPrintLikeIntegers) {
  EXPECT_LT(PageId(2), PageId(10));
  EXPECT_EQ(TokenSlot(7), TokenSlot(7));
  EXPECT_NE(TokenSlot(7), kNoSlot);
  std::ostringstream out;
  out << RequestRow(12) << ' ' << kNoSlot;
  EXPECT_EQ(out.str(), "12 -1");
}

TEST(Ids, AreHashable) {
  const std::unordered_set<TokenSlot> slots{TokenSlot(1), TokenSlot(2), TokenSlot(1)};
  EXPECT_EQ(slots.size(), 2u);
  EXPECT_TRUE(slots.contains(TokenSlot(2)));
}

TEST(Ids, SpanHasTheBytesOfAnInt32Span) {
  const std::vector<TokenSlot> slots{TokenSlot(3), kNoSlot, TokenSlot(1 << 30)};
  const std::vector<int32_t> numbers{3, -1, 1 << 30};
  ASSERT_EQ(sizeof(TokenSlot) * slots.size(), sizeof(int32_t) * numbers.size());
  EXPECT_EQ(std::memcmp(slots.data(), numbers.data(), sizeof(TokenSlot) * slots.size()), 0);
}

}  // namespace
}  // namespace attend
