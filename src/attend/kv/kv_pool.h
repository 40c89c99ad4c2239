// KvPool: token slot -> K/V of every layer. Pools know layouts, dtypes and scales; kernels see strided views.
#pragma once

#include <string_view>
#include <vector>

#include "attend/base/ids.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

// K and V of one layer, as kernels::KvView without its index.
struct LayerKv {
  TensorView k;  // [num_pages, page_size, num_kv_heads, head_dim_qk]
  TensorView v;  // [num_pages, page_size, num_kv_heads, head_dim_v]
  float k_scale = 1.0f, v_scale = 1.0f;
  // Full slot -> slot of the half of the pool that this layer lives in (SWA layers); null: the slot itself.
  const int32_t* slot_map = nullptr;
};

// Where the heads of a page lie. Kernels take strides, so every layout is one code path.
enum class KvLayout : uint8_t {
  kTokenMajor,  // [page, token, head, dim] (NHD): a token's heads together; GPUs
  kHeadMajor,   // [page, head, token, dim] (HND): a head's tokens together; CPUs read each head as one run
};

// Pages 0..num_pages-1, zero-initialized; page 0 is the padding page: kernels read it for padded requests,
// nothing may be stored there.
class KvPool {
 public:
  virtual ~KvPool() = default;

  // Throws Error(kInvalidArgument) for a layer that the pool does not have.
  virtual LayerKv layer(int layer_id) const = 0;
  // The latent rows of an MLA pool: [num_pages, page_size, kv_lora_rank + rope_dim], or scaled rows. Throws
  // Error(kUnsupported) in pools that keep K and V.
  virtual TensorView latent(int layer_id) const = 0;

  int page_size() const { return page_size_; }
  int num_pages() const { return num_pages_; }  // the padding page included
  int num_slots() const { return page_size_ * num_pages_; }
  DType dtype() const { return dtype_; }
  // Bytes of K/V that one token takes over all layers.
  virtual size_t bytes_per_token() const = 0;

 protected:
  // Throws as check_pages; dtype is a float, or kU8 in a pool that has rows of bytes.
  KvPool(int page_size, int num_pages, DType dtype);

 private:
  int page_size_, num_pages_;
  DType dtype_;
};

// Throws Error(kInvalidArgument) unless page_size is a power of two from 1 to 256.
void check_page_size(int page_size);
// The same, and unless num_pages holds the padding page and another, with slots that an int32 counts.
void check_pages(int page_size, int num_pages, std::string_view who);

struct KvScales {
  float k = 1.0f, v = 1.0f;  // descales: x / scale is stored
};

// Multi-head (or grouped-query) attention: K and V per layer.
class MhaKvPool : public KvPool {
 public:
  struct Config {
    int num_layers = 0;
    int num_kv_heads = 0;
    int head_dim_qk = 0;
    int head_dim_v = 0;
    int page_size = 16;
    int num_pages = 0;  // the padding page included
    DType dtype = DType::kBF16;
    KvLayout layout = KvLayout::kHeadMajor;
    Device device = {};
    std::vector<KvScales> scales = {};  // [num_layers], or empty: all 1
  };
  // Throws Error(kInvalidArgument) for a geometry that is no pool, and Error(kOutOfMemory) with needed and
  // free bytes before anything is mapped.
  explicit MhaKvPool(const Config& config);

  LayerKv layer(int layer_id) const override;
  TensorView latent(int layer_id) const override;
  size_t bytes_per_token() const override;
  const Config& config() const { return config_; }

  // Bytes that a pool takes, checked as in the constructor.
  static size_t num_bytes(const Config& config);

 private:
  Config config_;
  std::vector<Tensor> k_, v_;  // one per layer: [num_pages, page_size, num_kv_heads, head_dim]
};

// Multi-head latent attention: one row per token and layer. layer() gives it as K with one head, and its
// first kv_lora_rank elements as V: both views share the storage. Of scaled rows they are bytes.
class MlaKvPool : public KvPool {
 public:
  struct Config {
    int num_layers = 0;
    int kv_lora_rank = 512;
    int rope_dim = 64;
    int page_size = 64;
    int num_pages = 0;
    DType dtype = DType::kBF16;  // kU8: scaled rows (kernels/kv_store/selected_rows.h)
    Device device = {};
    std::vector<float> scales = {};  // [num_layers], or empty: all 1. K and V share the row, so they share it
  };
  // Throws as MhaKvPool.
  explicit MlaKvPool(const Config& config);

  LayerKv layer(int layer_id) const override;
  TensorView latent(int layer_id) const override;
  size_t bytes_per_token() const override;
  const Config& config() const { return config_; }

  static size_t num_bytes(const Config& config);

 private:
  Config config_;
  std::vector<Tensor> rows_;  // one per layer: [num_pages, page_size, elements of a row]
};

}  // namespace attend
#pragma GCC visibility pop
