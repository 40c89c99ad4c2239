#include "attend/model/weights/check_finite.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/base/parallel.h"

namespace attend {
namespace {

constexpr int64_t kCheckedRunElements = 1 << 18;

// Bits of the exponent. If all are set, the number is NaN or infinite, in all IEEE 754 formats and in
// bfloat16.
template <class Word>
Word exponent_mask(DType dtype) {
  if (dtype == DType::kF32) return static_cast<Word>(0x7f800000u);
  return static_cast<Word>(dtype == DType::kF16 ? 0x7c00u : 0x7f80u);
}

// Returns whether no word has all bits of the mask, which is directly below the sign bit. Adding the mask's
// lowest bit to a full mask carries into the sign. This takes three operations per vector, so memory
// bandwidth bounds the check.
template <class Word>
bool all_finite(const Word* words, int64_t count, Word mask) {
  const Word lowest = mask & static_cast<Word>(-mask);
  Word carried = 0;
  for (int64_t i = 0; i < count; ++i)
    carried = static_cast<Word>(carried | static_cast<Word>((words[i] & mask) + lowest));
  return carried >> (8 * sizeof(Word) - 1) == 0;
}

template <class Word>
void check_words(const TensorView& tensor, const std::string& where) {
  const auto* const words = static_cast<const Word*>(tensor.data);
  const int64_t count = tensor.num_elements();
  const Word mask = exponent_mask<Word>(tensor.dtype);
  std::atomic<bool> finite = true;
  parallel_for(ceil_div(count, kCheckedRunElements), [&](int64_t run, int) {
    const int64_t begin = run * kCheckedRunElements;
    if (!all_finite(words + begin, std::min(kCheckedRunElements, count - begin), mask)) finite = false;
  });
  if (finite) return;
  const Word* const found =
      std::find_if(words, words + count, [&](Word word) { return (word & mask) == mask; });
  const Word fraction_mask = (mask & -mask) - 1;
  fail(ErrorCode::kCorruptFile, where, ": element ", found - words, " is ",
       (*found & fraction_mask) == 0 ? "infinite" : "NaN", ": expected finite numbers");
}

// E4M3 has no infinities. It is NaN if all bits below the sign are set.
void check_bytes(const TensorView& tensor, const std::string& where) {
  const auto* const bytes = static_cast<const uint8_t*>(tensor.data);
  const int64_t count = tensor.num_elements();
  constexpr uint8_t kNaN = 0x7f;
  std::atomic<bool> finite = true;
  parallel_for(ceil_div(count, kCheckedRunElements), [&](int64_t run, int) {
    const int64_t begin = run * kCheckedRunElements;
    if (!all_finite(bytes + begin, std::min(kCheckedRunElements, count - begin), kNaN)) finite = false;
  });
  if (finite) return;
  const uint8_t* const found =
      std::find_if(bytes, bytes + count, [&](uint8_t byte) { return (byte & kNaN) == kNaN; });
  fail(ErrorCode::kCorruptFile, where, ": element ", found - bytes, " is NaN: expected finite numbers");
}

}  // namespace

void check_finite(const TensorView& tensor, const std::string& where) {
  if (tensor.dtype == DType::kF32) return check_words<uint32_t>(tensor, where);
  if (tensor.dtype == DType::kF8E4M3) return check_bytes(tensor, where);
  check_words<uint16_t>(tensor, where);
}

}  // namespace attend
