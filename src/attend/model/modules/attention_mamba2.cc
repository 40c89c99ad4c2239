#include "attend/model/modules/attention_mamba2.h"

namespace attend {

void AttentionMamba2Module::add_slots(SlotWriter& slots) {
  mamba_.add_slots(slots);
  attention_.add_slots(slots);
}

std::vector<int64_t> AttentionMamba2Module::scratch_widths() const {
  std::vector<int64_t> widths = mamba_.scratch_widths();
  const std::vector<int64_t> more = attention_.scratch_widths();
  widths.insert(widths.end(), more.begin(), more.end());
  return widths;
}

void AttentionMamba2Module::forward(ModuleStep& step) const {
  const TensorView mixed = mamba_.mix(step);
  attention_.forward(step);
  mamba_.add(mixed, step);
}

}  // namespace attend
