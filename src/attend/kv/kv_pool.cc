#include "attend/kv/kv_pool.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/tensor/arena.h"

namespace attend {
namespace {

void check_positive(int value, std::string_view name, std::string_view pool) {
  require(value > 0, name, " ", value, ": ", pool, " needs at least 1");
}

void check_layer(int layer_id, int num_layers, std::string_view pool) {
  require(layer_id >= 0 && layer_id < num_layers, "layer ", layer_id, ": ", pool, " has layers 0 to ",
          num_layers - 1);
}

void check_num_scales(size_t num_scales, int num_layers, std::string_view pool) {
  require(num_scales == 0 || num_scales == static_cast<size_t>(num_layers), "scales of ", num_scales,
          " layers: ", pool, " needs none or ", num_layers);
}

void check_scale(float scale, std::string_view pool) {
  require(std::isfinite(scale) && scale > 0, "scale ", scale, ": ", pool,
          " divides by it, so it must be above 0");
}

constexpr std::string_view kMha = "MhaKvPool";
constexpr std::string_view kMla = "MlaKvPool";

void check(const MhaKvPool::Config& config) {
  check_pages(config.page_size, config.num_pages, kMha);
  check_positive(config.num_layers, "num_layers", kMha);
  require(is_float(config.dtype), "dtype ", kernels::cache_dtype_name(config.dtype),
          ": MhaKvPool supports float32, float16, bfloat16, fp8_e4m3 and fp8_e5m2");
  check_positive(config.num_kv_heads, "num_kv_heads", kMha);
  check_positive(config.head_dim_qk, "head_dim_qk", kMha);
  check_positive(config.head_dim_v, "head_dim_v", kMha);
  check_num_scales(config.scales.size(), config.num_layers, kMha);
  for (const KvScales& scales : config.scales) {
    check_scale(scales.k, kMha);
    check_scale(scales.v, kMha);
  }
}

bool has_scaled_rows(const MlaKvPool::Config& config) { return config.dtype == DType::kU8; }

void check(const MlaKvPool::Config& config) {
  check_pages(config.page_size, config.num_pages, kMla);
  check_positive(config.num_layers, "num_layers", kMla);
  check_positive(config.kv_lora_rank, "kv_lora_rank", kMla);
  check_positive(config.rope_dim, "rope_dim", kMla);
  check_num_scales(config.scales.size(), config.num_layers, kMla);
  for (float scale : config.scales) check_scale(scale, kMla);
  require(config.index_dims.empty() || std::ssize(config.index_dims) == config.num_layers, "index_dims of ",
          config.index_dims.size(), " layers: MlaKvPool needs none or ", config.num_layers);
  require(!has_scaled_rows(config) || (config.kv_lora_rank == kernels::kScaledRow.rank &&
                                       config.rope_dim == kernels::kScaledRow.rope_dim),
          "kv_lora_rank ", config.kv_lora_rank, " and rope_dim ", config.rope_dim, ": rows of ",
          kernels::cache_dtype_name(config.dtype), " have ", kernels::kScaledRow.rank, " and ",
          kernels::kScaledRow.rope_dim);
}

DType index_dtype(const MlaKvPool::Config& config) {
  return size_of(config.dtype) == 1 ? DType::kBF16 : config.dtype;
}

size_t layer_bytes(int page_size, int num_pages, size_t row_elements, DType dtype) {
  const size_t num_slots = static_cast<size_t>(page_size) * static_cast<size_t>(num_pages);
  return Arena::padded_bytes(num_slots * row_elements * size_of(dtype));
}

size_t head_elements(const MhaKvPool::Config& config, int head_dim) {
  return static_cast<size_t>(config.num_kv_heads) * static_cast<size_t>(head_dim);
}

size_t row_elements(const MlaKvPool::Config& config) {
  if (has_scaled_rows(config)) return kernels::kScaledRow.bytes;
  return static_cast<size_t>(config.kv_lora_rank) + static_cast<size_t>(config.rope_dim);
}

// [num_pages, page_size, num_kv_heads, head_dim], in the memory order of the layout.
Tensor allocate_heads(Arena& arena, const MhaKvPool::Config& config, int head_dim) {
  if (config.layout == KvLayout::kTokenMajor)
    return arena.allocate({config.num_pages, config.page_size, config.num_kv_heads, head_dim}, config.dtype);
  const Tensor heads_first =
      arena.allocate({config.num_pages, config.num_kv_heads, config.page_size, head_dim}, config.dtype);
  return Tensor(heads_first.view().transpose(1, 2), heads_first.storage());
}

}  // namespace

void check_page_size(int page_size) {
  require(is_power_of_two(page_size) && page_size <= 256, "page_size ", page_size,
          ": expected a power of two from 1 to 256");
}

void check_pages(int page_size, int num_pages, std::string_view pool) {
  check_page_size(page_size);
  require(num_pages >= 2, "num_pages ", num_pages, ": ", pool,
          " needs at least 2, since page 0 is the padding page");
  constexpr int32_t kMaxSlots = std::numeric_limits<int32_t>::max();
  require(num_pages <= kMaxSlots / page_size, "num_pages ", num_pages, " of ", page_size, " tokens: ", pool,
          " numbers token slots with an int32, at most ", kMaxSlots / page_size, " pages");
}

KvPool::KvPool(int page_size, int num_pages, DType dtype)
    : page_size_(page_size), num_pages_(num_pages), dtype_(dtype) {
  check_pages(page_size, num_pages, "KvPool");
  require(is_float(dtype) || dtype == DType::kU8, "dtype ", dtype, ": KvPool supports ",
          kernels::kCacheDTypeNames);
}

MhaKvPool::MhaKvPool(const Config& config)
    : KvPool(config.page_size, config.num_pages, config.dtype), config_(config) {
  Arena arena(num_bytes(config), kMha, config.device);
  for (int layer_id = 0; layer_id < config.num_layers; ++layer_id) {
    k_.push_back(allocate_heads(arena, config, config.head_dim_qk));
    v_.push_back(allocate_heads(arena, config, config.head_dim_v));
  }
}

LayerKv MhaKvPool::layer(int layer_id) const {
  check_layer(layer_id, config_.num_layers, kMha);
  const auto i = static_cast<size_t>(layer_id);
  const KvScales scales = config_.scales.empty() ? KvScales{} : config_.scales[i];
  return {.k = k_[i], .v = v_[i], .k_scale = scales.k, .v_scale = scales.v, .slot_map = nullptr};
}

TensorView MhaKvPool::latent(int layer_id) const {
  fail(ErrorCode::kUnsupported, "latent rows of layer ", layer_id,
       ": MhaKvPool stores K and V, only MlaKvPool has latent rows");
}

size_t MhaKvPool::bytes_per_token() const {
  return static_cast<size_t>(config_.num_layers) *
         (head_elements(config_, config_.head_dim_qk) + head_elements(config_, config_.head_dim_v)) *
         size_of(config_.dtype);
}

size_t MhaKvPool::num_bytes(const Config& config) {
  check(config);
  const auto bytes = [&](int head_dim) {
    return layer_bytes(config.page_size, config.num_pages, head_elements(config, head_dim), config.dtype);
  };
  return static_cast<size_t>(config.num_layers) * (bytes(config.head_dim_qk) + bytes(config.head_dim_v));
}

MlaKvPool::MlaKvPool(const Config& config)
    : KvPool(config.page_size, config.num_pages, config.dtype), config_(config) {
  Arena arena(num_bytes(config), kMla, config.device);
  for (int layer_id = 0; layer_id < config.num_layers; ++layer_id)
    rows_.push_back(arena.allocate(
        {config.num_pages, config.page_size, static_cast<int64_t>(row_elements(config))}, config.dtype));
  for (const int dim : config.index_dims)
    index_keys_.push_back(
        dim == 0 ? Tensor() : arena.allocate({config.num_pages, config.page_size, dim}, index_dtype(config)));
}

LayerKv MlaKvPool::layer(int layer_id) const {
  const TensorView k = latent(layer_id).split(2, static_cast<int64_t>(row_elements(config_)));
  const float scale = config_.scales.empty() ? 1.0f : config_.scales[static_cast<size_t>(layer_id)];
  return {.k = k,
          .v = k.slice(3, 0, config_.kv_lora_rank),
          .k_scale = scale,
          .v_scale = scale,
          .slot_map = nullptr};
}

TensorView MlaKvPool::latent(int layer_id) const {
  check_layer(layer_id, config_.num_layers, kMla);
  return rows_[static_cast<size_t>(layer_id)];
}

TensorView MlaKvPool::index_keys(int layer_id) const {
  check_layer(layer_id, config_.num_layers, kMla);
  if (index_keys_.empty() || config_.index_dims[static_cast<size_t>(layer_id)] == 0) return {};
  return index_keys_[static_cast<size_t>(layer_id)];
}

size_t MlaKvPool::bytes_per_token() const {
  size_t bytes = static_cast<size_t>(config_.num_layers) * row_elements(config_) * size_of(config_.dtype);
  for (const int dim : config_.index_dims) bytes += static_cast<size_t>(dim) * size_of(index_dtype(config_));
  return bytes;
}

size_t MlaKvPool::num_bytes(const Config& config) {
  check(config);
  size_t bytes = static_cast<size_t>(config.num_layers) *
                 layer_bytes(config.page_size, config.num_pages, row_elements(config), config.dtype);
  for (const int dim : config.index_dims)
    bytes += layer_bytes(config.page_size, config.num_pages, static_cast<size_t>(dim), index_dtype(config));
  return bytes;
}

}  // namespace attend
