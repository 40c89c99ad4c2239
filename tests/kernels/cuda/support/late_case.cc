#include "tests/kernels/cuda/support/late_case.h"

#include <algorithm>
#include <cstring>

#include "attend/base/error.h"
#include "attend/kernels/metadata/find_page.h"
#include "tests/kernels/cuda/support/device_case.h"

namespace attend::testing_cuda {
namespace {

using conformance::BuiltCase;
using Rows = std::vector<const std::byte*>;

// Longer than the work of attention before its wait, short enough for a test.
constexpr int64_t kLateNanoseconds = 20'000;

const std::byte* row_at(const TensorView& view, std::initializer_list<int64_t> place) {
  int64_t at = 0, dim = 0;
  for (const int64_t i : place) at += i * view.strides[static_cast<size_t>(dim++)];
  return static_cast<const std::byte*>(view.data) + at * static_cast<int64_t>(size_of(view.dtype));
}

// Rows of a tensor [num_tokens, num_heads, head_dim].
Rows token_rows(const TensorView& view) {
  Rows rows;
  for (int64_t token = 0; token < view.shape[0]; ++token)
    for (int64_t head = 0; head < view.shape[1]; ++head) rows.push_back(row_at(view, {token, head}));
  return rows;
}

// Rows of a pool [num_pages, page_size, (num_heads,) head_dim] that contain new tokens of requests. Index
// entries of tokens outside the mask are invalid, so those tokens are skipped.
Rows rows_of_new_keys(const TensorView& pool, const kernels::KvIndex& index, const kernels::QueryBatch& batch,
                      const kernels::AttentionMask& attention_mask) {
  Rows rows;
  for (int r = 0; r < batch.num_reqs(); ++r) {
    const auto request = static_cast<size_t>(r);
    const int seqlen_q = batch.cu_seqlen_q[request + 1] - batch.cu_seqlen_q[request];
    const int seqlen_kv = batch.seqlen_kv[request];
    const int first_seen = attention_mask.causal ? 0 : kernels::first_unmasked(attention_mask, seqlen_kv - 1);
    for (int p = std::max(first_seen, seqlen_kv - seqlen_q); p < seqlen_kv; ++p) {
      const int page = kernels::find_page(index, r, p), in_page = p & (index.page_size - 1);
      if (pool.rank == 3) rows.push_back(row_at(pool, {page, in_page}));
      for (int64_t head = 0; pool.rank == 4 && head < pool.shape[2]; ++head)
        rows.push_back(row_at(pool, {page, in_page, head}));
    }
  }
  return rows;
}

int64_t row_bytes(const TensorView& view) {
  return view.shape[static_cast<size_t>(view.rank) - 1] * static_cast<int64_t>(size_of(view.dtype));
}

// Copy of `host` in `storage`, gaps included, with NaN in `rows`.
TensorView poisoned(const TensorView& host, const Rows& rows, int64_t num_row_bytes, int64_t num_bytes,
                    Tensor& storage) {
  storage = Tensor::empty({num_bytes}, DType::kU8);
  auto* const copy = static_cast<std::byte*>(storage.view().data);
  std::memcpy(copy, host.data, static_cast<size_t>(num_bytes));
  for (const std::byte* row : rows)
    std::memset(copy + (row - static_cast<const std::byte*>(host.data)), 0xff,
                static_cast<size_t>(num_row_bytes));
  TensorView view = host;
  view.data = copy;
  return view;
}

}  // namespace

LateTensor::LateTensor(const TensorView& host, const Rows& rows, int64_t num_row_bytes, Stream& stream)
    : whole_(host, stream),
      poisoned_(poisoned(host, rows, num_row_bytes, whole_.bytes().num_elements(), poisoned_host_), stream),
      present_(host, stream) {
  for (const std::byte* row : rows) {
    const int64_t at = row - static_cast<const std::byte*>(host.data);
    rows_.push_back({static_cast<std::byte*>(present_.view().data) + at,
                     static_cast<const std::byte*>(whole_.view().data) + at, num_row_bytes});
  }
}

void LateTensor::reset(Stream& stream) const { cuda::copy(poisoned_.bytes(), present_.bytes(), stream); }

template <class Args>
LateCase::LateCase(const Args& args, const BuiltCase& built, Stream& stream, int)
    : stream_(stream),
      arrays_(stream),
      out_(args.out, stream),
      lse_(args.lse, stream),
      empty_out_(args.out, stream),
      empty_lse_(args.lse, stream),
      plan_(plan_limits(built.spec), kGpu),
      batch_(upload(args.batch, arrays_)),
      attention_mask_(args.attention_mask) {}

// Arguments on the device except q and keys.
template <class Args>
Args LateCase::on_device(const Args& args) {
  Args device = args;
  device.out = out_.view();
  device.lse = lse_.view();
  device.batch = batch_;
  device.score.sinks = arrays_.view(args.score.sinks);
  return device;
}

LateCase::LateCase(const kernels::AttentionArgs& args, const BuiltCase& built, Stream& stream)
    : LateCase(args, built, stream, 0) {
  kernels::AttentionArgs device = on_device(args);
  device.q = late(args.q, token_rows(args.q));
  device.kv.k = late(args.kv.k, rows_of_new_keys(args.kv.k, args.kv.index, args.batch, args.attention_mask));
  device.kv.v = late(args.kv.v, rows_of_new_keys(args.kv.v, args.kv.index, args.batch, args.attention_mask));
  device.kv.index = upload(args.kv.index, built, arrays_);
  attend_ = [this, device](bool prefix_ready) mutable {
    device.prefix_ready = prefix_ready;
    kernels::attention(device, plan_, stream_);
  };
  gather_rows();
}

LateCase::LateCase(const kernels::MlaArgs& args, const BuiltCase& built, Stream& stream)
    : LateCase(args, built, stream, 0) {
  kernels::MlaArgs device = on_device(args);
  device.q = late(args.q, token_rows(args.q));
  device.q_rope = late(args.q_rope, token_rows(args.q_rope));
  device.latent =
      late(args.latent, rows_of_new_keys(args.latent, args.index, args.batch, args.attention_mask));
  device.index = upload(args.index, built, arrays_);
  attend_ = [this, device](bool prefix_ready) mutable {
    device.prefix_ready = prefix_ready;
    kernels::mla(device, plan_, stream_);
  };
  gather_rows();
}

TensorView LateCase::late(const TensorView& host, const Rows& rows) {
  tensors_.push_back(std::make_unique<LateTensor>(host, rows, row_bytes(host), stream_));
  return tensors_.back()->view();
}

void LateCase::gather_rows() {
  std::vector<LateRow> rows;
  for (const auto& tensor : tensors_) rows.insert(rows.end(), tensor->rows().begin(), tensor->rows().end());
  rows_ = arrays_.view(std::span<const LateRow>(rows));
  // The uploads read memory of this function.
  cuda::synchronize(stream_);
}

void LateCase::queue(bool prefix_ready) {
  for (const auto& tensor : tensors_) tensor->reset(stream_);
  cuda::copy(empty_out_.bytes(), out_.bytes(), stream_);
  if (!lse_.bytes().empty()) cuda::copy(empty_lse_.bytes(), lse_.bytes(), stream_);
  plan_.plan(batch_, attention_mask_, stream_);
  launch_late_rows(rows_.data(), static_cast<int>(rows_.size()), kLateNanoseconds, stream_.handle);
  attend_(prefix_ready);
}

void LateCase::download() {
  out_.download(stream_);
  lse_.download(stream_);
  cuda::synchronize(stream_);
}

namespace {

template <class Args>
void attend_after_late_keys(const Args& args, const BuiltCase& built) {
  cuda::OwnedStream owned(kGpu);
  LateCase late(args, built, owned.get());
  late.queue(false);
  late.download();
  const std::vector<unsigned char> expected = built.result_bytes();
  late.queue(true);
  late.download();
  ensure(built.result_bytes() == expected, "other bits where the prefix is ready");
}

}  // namespace

void attention_after_late_keys(const kernels::AttentionArgs& args, const BuiltCase& built) {
  attend_after_late_keys(args, built);
}
void mla_after_late_keys(const kernels::MlaArgs& args, const BuiltCase& built) {
  attend_after_late_keys(args, built);
}

}  // namespace attend::testing_cuda
