// KvPool: token slot -> K/V of every layer. A pool defines layout, dtype and scales; kernels use strided
// views.
#pragma once

#include <string_view>
#include <vector>

#include "attend/base/ids.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

// K and V of one layer: a kernels::KvView without an index.
struct LayerKv {
  TensorView k;  // [num_pages, page_size, num_kv_heads, head_dim_qk]
  TensorView v;  // [num_pages, page_size, num_kv_heads, head_dim_v]
  float k_scale = 1.0f, v_scale = 1.0f;
  // Token slot -> slot in the window half (sliding-window layers); null: the token slot itself.
  const int32_t* slot_map = nullptr;
};

// Order of heads and tokens in a page. Kernels use strides, so all layouts share one code path.
enum class KvLayout : uint8_t {
  kTokenMajor,  // [page, token, head, dim] (NHD): heads of a token are contiguous; GPUs
  kHeadMajor,   // [page, head, token, dim] (HND): tokens of a head are contiguous, which CPUs read as one run
};

// Pages 0..num_pages-1, initialized with zeros. Page 0 is the padding page: kernels read it for pad requests,
// and nothing may be stored there.
class KvPool {
 public:
  virtual ~KvPool() = default;

  // Throws Error(kInvalidArgument) for a layer that the pool does not have.
  virtual LayerKv layer(int layer_id) const = 0;
  // Latent rows of an MLA pool: [num_pages, page_size, kv_lora_rank + rope_dim], or scaled rows. Throws
  // Error(kUnsupported) for pools that store K and V.
  virtual TensorView latent(int layer_id) const = 0;
  // Index keys of a layer with an indexer: [num_pages, page_size, index_dim]. Empty: the layer has none.
  virtual TensorView index_keys(int /*layer_id*/) const { return {}; }

  int page_size() const { return page_size_; }
  int num_pages() const { return num_pages_; }  // including the padding page
  int num_slots() const { return page_size_ * num_pages_; }
  DType dtype() const { return dtype_; }
  // K/V bytes of one token, sum over all layers.
  virtual size_t bytes_per_token() const = 0;

 protected:
  // Throws the errors of check_pages(). `dtype`: a float type, or kU8 for rows of bytes.
  KvPool(int page_size, int num_pages, DType dtype);

 private:
  int page_size_, num_pages_;
  DType dtype_;
};

// Throws Error(kInvalidArgument) unless page_size is a power of two from 1 to 256.
void check_page_size(int page_size);
// Checks page_size, and that num_pages is at least 2 and all slots fit into an int32. `pool`: name for
// errors.
void check_pages(int page_size, int num_pages, std::string_view pool);

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
    int num_pages = 0;  // including the padding page
    DType dtype = DType::kBF16;
    KvLayout layout = KvLayout::kHeadMajor;
    Device device = {};
    std::vector<KvScales> scales = {};  // [num_layers], or empty: all 1
  };
  // Throws Error(kInvalidArgument) for an invalid geometry, and Error(kOutOfMemory) with needed and free
  // bytes before memory is mapped.
  explicit MhaKvPool(const Config& config);

  LayerKv layer(int layer_id) const override;
  TensorView latent(int layer_id) const override;
  size_t bytes_per_token() const override;
  const Config& config() const { return config_; }

  // Bytes of a pool. Checks the config as the constructor does.
  static size_t num_bytes(const Config& config);

 private:
  Config config_;
  std::vector<Tensor> k_, v_;  // one per layer: [num_pages, page_size, num_kv_heads, head_dim]
};

// Multi-head latent attention: one row per token and layer. In layer(), K is the row with one head, and V is
// the first kv_lora_rank elements of K; both views share the storage. Scaled rows are views of bytes.
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
    std::vector<float> scales = {};  // [num_layers], or empty: all 1. K and V share the row and its scale
    // [num_layers] elements of the layer's index keys, 0: none; empty: no layer has any. They have the dtype
    // of the rows, or bfloat16 if that has 8 bits.
    std::vector<int> index_dims = {};
  };
  // Throws the errors of MhaKvPool.
  explicit MlaKvPool(const Config& config);

  LayerKv layer(int layer_id) const override;
  TensorView latent(int layer_id) const override;
  TensorView index_keys(int layer_id) const override;
  size_t bytes_per_token() const override;
  const Config& config() const { return config_; }

  static size_t num_bytes(const Config& config);

 private:
  Config config_;
  std::vector<Tensor> rows_;        // one per layer: [num_pages, page_size, elements of a row]
  std::vector<Tensor> index_keys_;  // one per layer, empty without index keys: [num_pages, page_size, dim]
};

}  // namespace attend
#pragma GCC visibility pop
