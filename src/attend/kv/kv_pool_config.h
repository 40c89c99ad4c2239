// A pool of any kind, before there is one.
#pragma once

#include <memory>
#include <span>
#include <variant>

#include "attend/kv/kv_pool.h"
#include "attend/kv/swa_kv_pool.h"

#pragma GCC visibility push(default)
namespace attend {

using KvPoolConfig = std::variant<MhaKvPool::Config, MlaKvPool::Config, SwaKvPool::Config>;
std::unique_ptr<KvPool> make_kv_pool(const KvPoolConfig& config);
size_t kv_pool_bytes(const KvPoolConfig& config);
// Sets num_pages, the padding page included; in a pool of two halves those of the full half.
void set_num_pages(KvPoolConfig& config, int num_pages);
// Sets the scales of the model's layers; none: all 1. In a pool whose K and V share a row they have to be
// equal. Throws Error(kInvalidArgument) for another number of layers.
void set_kv_scales(KvPoolConfig& config, std::span<const KvScales> scales);
// Bytes that one more page takes: on average, where the halves of a pool grow at different rates.
double kv_page_bytes(KvPoolConfig config);

}  // namespace attend
#pragma GCC visibility pop
