// Positions with three axes (time, row, column) of the tokens of a prompt with images.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attend {

// Tokens of an image in a prompt.
struct ImageSpan {
  int first_token = 0, rows = 0, columns = 0;
};

struct PromptPositions {
  std::vector<int32_t> axes[3];  // [num_tokens] each
  // Position of a later token, on each axis, minus its index.
  int delta = 0;
};

// The axes of a text token are equal: one more than the largest position before it. The tokens of an image
// have the time p of its begin, row p + row and column p + column; the next token has p + max(rows, columns).
// `images`: in the order of the prompt. (M-RoPE, arXiv 2409.12191, section 2.1)
PromptPositions prompt_positions(int num_tokens, std::span<const ImageSpan> images);

}  // namespace attend
