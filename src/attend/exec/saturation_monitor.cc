#include "attend/exec/saturation_monitor.h"

#include <algorithm>
#include <map>
#include <vector>

#include "attend/base/log.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

constexpr int kMaxChecks = 8;
constexpr size_t kMaxSlots = 256;  // per prompt

// Returns the bits of the largest finite value, without the sign.
uint8_t largest_bits(DType dtype) { return dtype == DType::kF8E4M3 ? 0x7e : 0x7b; }

// Page of a layer in host memory, copied if the pool is on a GPU. A page is contiguous in every layout.
class Page {
 public:
  Page(const TensorView& kv, int64_t page_idx) : data_(static_cast<const uint8_t*>(kv.data)) {
    const int64_t page_bytes = kv.strides[0];
    data_ += page_idx * page_bytes;
    if (kv.device.type != DeviceType::kCuda) return;
    copy_.resize(static_cast<size_t>(page_bytes));
    cuda::OwnedStream stream(kv.device);
    cuda::copy(TensorView::contiguous(const_cast<uint8_t*>(data_), DType::kU8, {page_bytes}, kv.device),
               TensorView::contiguous(copy_.data(), DType::kU8, {page_bytes}), stream.get());
    cuda::synchronize(stream.get());
    data_ = copy_.data();
  }
  const uint8_t* data() const { return data_; }

 private:
  const uint8_t* data_;
  std::vector<uint8_t> copy_;
};

void count(const TensorView& kv, const std::map<int64_t, std::vector<int64_t>>& page_tokens, uint8_t largest,
           SaturationCount& counted) {
  for (const auto& [page_idx, tokens] : page_tokens) {
    const Page page(kv, page_idx);
    for (const int64_t token : tokens)
      for (int64_t head = 0; head < kv.shape[2]; ++head) {
        const uint8_t* values = page.data() + token * kv.strides[1] + head * kv.strides[2];
        counted.num_values += kv.shape[3];
        counted.num_saturated += std::count_if(values, values + kv.shape[3],
                                               [&](uint8_t bits) { return (bits & 0x7f) == largest; });
      }
  }
}

}  // namespace

SaturationCount count_saturated(const KvPool& pool, int layer_id, View<const TokenSlot> slots) {
  const LayerKv layer = pool.layer(layer_id);
  SaturationCount counted;
  if (!is_fp8(pool.dtype()) || layer.slot_map != nullptr) return counted;
  std::map<int64_t, std::vector<int64_t>> page_tokens;
  for (const TokenSlot slot : slots)
    page_tokens[slot.value / pool.page_size()].push_back(slot.value % pool.page_size());
  count(layer.k, page_tokens, largest_bits(pool.dtype()), counted);
  // With MLA the values are the first columns of the keys.
  if (layer.v.data != layer.k.data) count(layer.v, page_tokens, largest_bits(pool.dtype()), counted);
  return counted;
}

void SaturationMonitor::check(const KvPool& pool, View<const TokenSlot> slots) {
  if (!is_fp8(pool.dtype()) || num_checks_ >= kMaxChecks) return;
  ++num_checks_;
  const View<const TokenSlot> some = slots.first(std::min(slots.size(), kMaxSlots));
  SaturationCount all;
  for (int layer_id = 0; layer_id < num_layers_; ++layer_id) {
    const SaturationCount layer_count = count_saturated(pool, layer_id, some);
    all.num_saturated += layer_count.num_saturated;
    all.num_values += layer_count.num_values;
  }
  if (all.num_saturated == 0) return;
  num_checks_ = kMaxChecks;
  log_warning("K/V in ", pool.dtype(), ": ", all.num_saturated, " of ", all.num_values,
              " values of a prompt equal the largest finite value, to which larger ones are clamped: expect "
              "output that "
              "differs from bfloat16 (fp8_e5m2 has a larger range)");
}

}  // namespace attend
