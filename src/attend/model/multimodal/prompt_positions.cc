#include "attend/model/multimodal/prompt_positions.h"

#include <algorithm>

namespace attend {

PromptPositions prompt_positions(int num_tokens, std::span<const ImageSpan> images) {
  PromptPositions positions;
  int token = 0, next = 0;
  const auto add = [&](int time, int row, int column) {
    positions.axes[0].push_back(time);
    positions.axes[1].push_back(row);
    positions.axes[2].push_back(column);
    ++token;
  };
  const auto add_text = [&](int end) {
    for (; token < end; ++next) add(next, next, next);
  };
  for (const ImageSpan& image : images) {
    add_text(image.first_token);
    for (int row = 0; row < image.rows; ++row)
      for (int column = 0; column < image.columns; ++column) add(next, next + row, next + column);
    next += std::max(image.rows, image.columns);
  }
  add_text(num_tokens);
  positions.delta = next - num_tokens;
  return positions;
}

}  // namespace attend
