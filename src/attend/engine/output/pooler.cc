#include "attend/engine/output/pooler.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/model/weights/check_finite.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

constexpr std::pair<std::string_view, Pooling> kPoolings[] = {
    {"mean", Pooling::kMean}, {"cls", Pooling::kCls}, {"last", Pooling::kLast}};

// Sum over rows [num_rows, sum.size()] in host memory, in float64.
void add_rows(const TensorView& rows, std::vector<double>& sum) {
  const bool known = visit_float_dtype(rows.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* row = static_cast<const T*>(rows.data);
    for (int64_t token = 0; token < rows.shape[0]; ++token, row += sum.size())
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(static_cast<float>(row[i]));
  });
  ensure(known, "hidden states of dtype ", rows.dtype);
}

Tensor to_host(const TensorView& rows, Stream& stream) {
  Tensor host = Tensor::empty({rows.shape[0], rows.shape[1]}, rows.dtype);
  cuda::copy(rows, host, stream);
  cuda::synchronize(stream);
  return host;
}

// Returns the rows of a matrix that are the outputs of `dense`, in float32.
Tensor choose_rows(const TensorView& matrix, const EmbeddingDense& dense) {
  const int64_t width = matrix.shape[1];
  Tensor chosen = Tensor::empty({std::ssize(dense.rows), width}, DType::kF32);
  const std::span<float> out = chosen.span<float>();
  visit_float_dtype(matrix.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (size_t i = 0; i < dense.rows.size(); ++i) {
      const T* row = static_cast<const T*>(matrix.data) + dense.rows[i] * width;
      for (int64_t k = 0; k < width; ++k)
        out[i * static_cast<size_t>(width) + static_cast<size_t>(k)] = static_cast<float>(row[k]);
    }
  });
  if (!dense.difference) return chosen;
  Tensor difference = Tensor::empty({1, width}, DType::kF32);
  const std::span<float> one = difference.span<float>();
  for (size_t k = 0; k < one.size(); ++k) one[k] = out[out.size() - one.size() + k] - out[k];
  return difference;
}

void l2_normalize(std::vector<float>& vector) {
  double squares = 0.0;
  for (const float x : vector) squares += static_cast<double>(x) * static_cast<double>(x);
  // Zero vectors stay zero, as in torch's normalize().
  const double length = std::max(std::sqrt(squares), 1e-12);
  for (float& x : vector) x = static_cast<float>(static_cast<double>(x) / length);
}

}  // namespace

std::string_view to_string(Pooling pooling) {
  for (const auto& [name, value] : kPoolings)
    if (value == pooling) return name;
  return "?";
}

Pooling parse_pooling(std::string_view name) {
  for (const auto& [known, value] : kPoolings)
    if (known == name) return value;
  fail(ErrorCode::kInvalidArgument, "pooling \"", name, "\": expected mean, cls or last");
}

std::vector<float> truncate_and_normalize(std::vector<float> vector, int dimensions, bool normalize) {
  require(dimensions >= 1 && dimensions <= std::ssize(vector), "dimensions ", dimensions, ": 1 to ",
          vector.size());
  vector.resize(static_cast<size_t>(dimensions));
  if (normalize) l2_normalize(vector);
  return vector;
}

void check_inputs(std::span<const std::vector<int32_t>> inputs, int max_tokens, int vocab_size) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    require(!inputs[i].empty(), "input ", i, ": empty: expected at least one token");
    require(std::ssize(inputs[i]) <= max_tokens, "input ", i, " of ", inputs[i].size(), " tokens: at most ",
            max_tokens);
    for (const int32_t id : inputs[i])
      require(id >= 0 && id < vocab_size, "input ", i, ": token id ", id, ": expected 0 to ", vocab_size - 1);
  }
}

void check_token_types(std::span<const std::vector<int32_t>> types,
                       std::span<const std::vector<int32_t>> inputs, int num_types) {
  if (types.empty()) return;
  require(types.size() == inputs.size(), "token types of ", types.size(), " inputs: expected those of ",
          inputs.size());
  for (size_t i = 0; i < types.size(); ++i) {
    require(types[i].empty() || types[i].size() == inputs[i].size(), "input ", i, ": ", types[i].size(),
            " token types for ", inputs[i].size(), " tokens");
    for (const int32_t type : types[i])
      require(type >= 0 && type < num_types, "input ", i, ": token type ", type, ": expected 0 to ",
              num_types - 1);
  }
}

Pooler::Pooler(const PoolingSpec& spec) : pooling_(spec.pooling), normalize_(spec.normalize) {
  for (const EmbeddingDense& dense : spec.dense) dense_.push_back(load_dense(dense));
}

Pooler::DenseLayer Pooler::load_dense(const EmbeddingDense& dense) {
  DenseLayer layer{.file = open_checkpoint(dense.directory)->open_tensors(), .tanh = dense.tanh};
  const auto load = [&](const std::string& name, std::initializer_list<int64_t> shape) {
    const Tensor tensor = layer.file->tensor(name);
    const TensorView& view = tensor.view();
    const std::span<const int64_t> stored(view.shape.data(), static_cast<size_t>(view.rank));
    if (!std::ranges::equal(stored, shape))
      fail(ErrorCode::kCorruptFile, layer.file->where(name), ": ", view, ": config.json defines ",
           dense.in_features, " inputs and ", *shape.begin(), " outputs");
    if (view.dtype != DType::kF32 && view.dtype != DType::kF16 && view.dtype != DType::kBF16)
      fail(ErrorCode::kUnsupported, layer.file->where(name), ": dtype ", view.dtype,
           ": expected float32, float16 or bfloat16");
    check_finite(view, layer.file->where(name));
    return tensor;
  };
  const int64_t num_rows = dense.rows.empty() ? dense.out_features : dense.num_rows;
  layer.weight = load(dense.name + ".weight", {num_rows, dense.in_features});
  if (!dense.rows.empty()) layer.weight = choose_rows(layer.weight.view(), dense);
  if (dense.bias) layer.bias = load(dense.name + ".bias", {dense.out_features});
  return layer;
}

std::vector<float> Pooler::pool(const TensorView& hidden_states, Stream& stream) const {
  const int64_t num_tokens = hidden_states.shape[0];
  const int64_t first = pooling_ == Pooling::kLast ? num_tokens - 1 : 0;
  const int64_t count = pooling_ == Pooling::kMean ? num_tokens : 1;
  const TensorView pooled = hidden_states.slice(0, first, first + count);
  std::vector<double> sum(static_cast<size_t>(hidden_states.shape[1]), 0.0);
  if (stream.device.type == DeviceType::kCpu)
    add_rows(pooled, sum);
  else
    add_rows(to_host(pooled, stream).view(), sum);
  std::vector<float> vector(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) vector[i] = static_cast<float>(sum[i] / static_cast<double>(count));
  Stream on_host;
  for (const DenseLayer& layer : dense_) {
    std::vector<float> next(static_cast<size_t>(layer.weight.shape(0)));
    kernels::linear({.x = TensorView::contiguous(vector.data(), DType::kF32, {1, std::ssize(vector)}),
                     .weight = layer.weight.view(),
                     .bias = layer.bias,
                     .out = TensorView::contiguous(next.data(), DType::kF32, {1, std::ssize(next)})},
                    on_host);
    if (layer.tanh)
      for (float& x : next) x = std::tanh(x);
    vector = std::move(next);
  }
  if (normalize_) l2_normalize(vector);
  return vector;
}

}  // namespace attend
