#include "attend/engine/embedder.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <utility>

#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/input_file.h"
#include "attend/engine/bidirectional_attention.h"
#include "attend/engine/embedding_files.h"
#include "attend/engine/require_memory.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/kv/allocator.h"
#include "attend/kv/kv_pool_config.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/model/weight_inventory.h"
#include "attend/model/weights/check_finite.h"
#include "attend/tensor/arena.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend {
namespace {

constexpr std::pair<std::string_view, Pooling> kPoolings[] = {
    {"mean", Pooling::kMean}, {"cls", Pooling::kCls}, {"last", Pooling::kLast}};
constexpr int kMaxInputTokens = 8192;
constexpr int kMaxInputs = 256;    // of a step
constexpr int kStepTokens = 2048;  // of a step, and more where one input has more

// A layer behind the pooling, with the file that it is mapped from.
struct DenseLayer {
  std::shared_ptr<const CheckpointTensors> file;
  Tensor weight = {}, bias = {};
  bool tanh = false;
};

DenseLayer load_dense(const EmbeddingDense& dense) {
  DenseLayer layer{.file = open_checkpoint(dense.directory)->open_tensors(), .tanh = dense.tanh};
  const auto load = [&](const char* name, std::initializer_list<int64_t> shape) {
    const Tensor tensor = layer.file->tensor(name);
    const TensorView& view = tensor.view();
    const std::span<const int64_t> stored(view.shape.data(), static_cast<size_t>(view.rank));
    if (!std::ranges::equal(stored, shape))
      fail(ErrorCode::kCorruptFile, layer.file->where(name), ": ", view,
           ": its config.json says in_features ", dense.in_features, " and out_features ",
           dense.out_features);
    if (view.dtype != DType::kF32 && view.dtype != DType::kF16 && view.dtype != DType::kBF16)
      fail(ErrorCode::kUnsupported, layer.file->where(name), ": dtype ", view.dtype,
           ": attend has weights in float32, float16, bfloat16");
    check_finite(view, layer.file->where(name));
    return tensor;
  };
  layer.weight = load("linear.weight", {dense.out_features, dense.in_features});
  if (dense.bias) layer.bias = load("linear.bias", {dense.out_features});
  return layer;
}

// rows += a token's hidden state, in float64.
void add(const float* hidden, std::vector<double>& sum) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(hidden[i]);
}

void normalize_to_length_one(std::vector<float>& vector) {
  double squares = 0.0;
  for (const float x : vector) squares += static_cast<double>(x) * static_cast<double>(x);
  // As torch's normalize() keeps zeros what they are.
  const double length = std::max(std::sqrt(squares), 1e-12);
  for (float& x : vector) x = static_cast<float>(static_cast<double>(x) / length);
}

}  // namespace

std::string_view to_string(Pooling pooling) {
  for (const auto& [name, value] : kPoolings)
    if (value == pooling) return name;
  return "?";
}

Pooling pooling_of(std::string_view name) {
  for (const auto& [known, value] : kPoolings)
    if (known == name) return value;
  fail(ErrorCode::kInvalidArgument, "pooling \"", name, "\": expected mean, cls or last");
}

struct Embedder::State {
  EmbedderInfo info;
  ModelSpec spec;
  std::optional<Tokenizer> tokenizer;
  std::string gguf_note;  // of the model directory, where there is no tokenizer
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<ReqToTokenPool> rows;
  std::unique_ptr<SlotAllocator> slots;
  std::unique_ptr<AttentionBackend> attention;
  std::unique_ptr<Model> model;
  std::vector<DenseLayer> dense;
  Tensor hidden;  // f32 [max_step_tokens, hidden_size]
  std::mutex one_at_a_time;

  State(const EmbedderConfig& config, const LoadProgress& progress);

  const Tokenizer& text_tokenizer() const;
  void check(std::span<const std::vector<int32_t>> inputs) const;
  // Hidden states of the inputs' tokens, one input after another, as rows of `hidden`.
  void run(std::span<const std::vector<int32_t>> inputs);
  // The vector of an input whose hidden states are rows first .. first + length - 1.
  std::vector<float> vector_of(int64_t first, int64_t length) const;
};

Embedder::State::State(const EmbedderConfig& config, const LoadProgress& progress) {
  const std::unique_ptr<Checkpoint> checkpoint = open_checkpoint(config.model_path);
  spec = read_config(*checkpoint);
  // The head is not asked for, and embedding models are published without one.
  spec.tie_word_embeddings = true;
  tokenizer = Tokenizer::find(*checkpoint);
  if (!tokenizer) gguf_note = attend::gguf_note(config.model_path);
  const std::optional<EmbeddingFiles> files = read_embedding_files(config.model_path);

  info.model = spec.architecture;
  info.bidirectional = spec.bidirectional;
  const Pooling usual = spec.bidirectional ? Pooling::kMean : Pooling::kLast;
  info.pooling = config.pooling.value_or(files && files->pooling ? *files->pooling : usual);
  info.normalize = config.normalize.value_or(files ? files->normalize : true);
  const int longest = std::min(spec.max_context_len(), kMaxInputTokens);
  require(config.max_input_tokens >= 0 && config.max_input_tokens <= longest, "max_input_tokens ",
          config.max_input_tokens, ": 1 to ", longest, ", or 0 for what the model says");
  const int by_files = std::min(files ? files->max_tokens.value_or(longest) : longest, longest);
  info.max_input_tokens = config.max_input_tokens > 0 ? config.max_input_tokens : by_files;
  info.dimensions = spec.hidden_size;
  for (const EmbeddingDense& layer : files ? files->dense : std::vector<EmbeddingDense>()) {
    if (layer.in_features != info.dimensions)
      fail(ErrorCode::kCorruptFile, (layer.directory / "config.json").string(), ": in_features ",
           layer.in_features, ": expected ", info.dimensions, ", what comes before it");
    info.dimensions = layer.out_features;
  }

  ModelGeometry geometry = spec.geometry(DType::kF32, DType::kF32);
  geometry.max_context_len = info.max_input_tokens;
  const ModelGeometry seen = spec.bidirectional ? without_windows(geometry) : geometry;
  Requirement requirement = requirement_of(seen);
  if (spec.bidirectional) requirement.speculation = Speculation::kTree;
  info.resolution = resolve(requirement, detect_cpu(), config.backend_options, backend_table());
  const int page_size = info.resolution.page_size;
  info.max_step_tokens = std::max(info.max_input_tokens, kStepTokens);
  info.max_step_inputs = kMaxInputs;
  const int step_tokens = info.max_step_tokens;
  const BatchLimits limits{.max_reqs = kMaxInputs, .max_tokens = step_tokens, .max_kv_tokens = step_tokens};
  // Every input may end with a page that is not full.
  const int num_pages = step_tokens / page_size + limits.max_reqs + 1;
  KvPoolConfig pool_config = make_kv_pool_config(spec.caches(), page_size, DType::kF32);
  set_num_pages(pool_config, num_pages);
  const BackendConfig backend{.model = seen, .limits = limits, .page_size = page_size};
  const auto tokens = std::to_string(step_tokens);
  const WeightInventory weights(spec, config.load_format == LoadFormat::kDummy ? nullptr : checkpoint.get());
  require_memory(
      {{"weights", static_cast<double>(weights.copied_bytes()), "--model-path"},
       {"K/V of " + tokens + " tokens", static_cast<double>(kv_pool_bytes(pool_config)),
        "--max-input-tokens"},
       {"activations of " + tokens + " tokens",
        activation_bytes(spec, limits, {}) + 4.0 * step_tokens * spec.hidden_size, "--max-input-tokens"}},
      available_bytes({}));
  pool = make_kv_pool(pool_config);
  rows = std::make_unique<ReqToTokenPool>(limits.max_reqs, info.max_input_tokens);
  slots = make_allocator(page_size, num_pages);
  attention = create_backend(info.resolution, {.config = backend, .requests = *rows, .pool = *pool});
  if (spec.bidirectional)
    attention = std::make_unique<BidirectionalAttention>(std::move(attention), geometry);
  for (const EmbeddingDense& layer : files ? files->dense : std::vector<EmbeddingDense>())
    dense.push_back(load_dense(layer));
  model = load_model(config.model_path, spec, config.load_format, progress);
  model->prepare(limits);
  hidden = Tensor::empty({step_tokens, spec.hidden_size}, DType::kF32);
  info.weight_bytes = model->weight_bytes();
}

void Embedder::State::check(std::span<const std::vector<int32_t>> inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    require(!inputs[i].empty(), "input ", i, ": empty: expected at least one token");
    require(std::ssize(inputs[i]) <= info.max_input_tokens, "input ", i, " of ", inputs[i].size(),
            " tokens: at most ", info.max_input_tokens);
    for (const int32_t id : inputs[i])
      require(id >= 0 && id < spec.vocab_size, "input ", i, ": token id ", id, ": expected 0 to ",
              spec.vocab_size - 1);
  }
}

void Embedder::State::run(std::span<const std::vector<int32_t>> inputs) {
  std::vector<int32_t> ids, positions, lengths, cu_lengths{0};
  std::vector<RequestRow> request_rows;
  for (const std::vector<int32_t>& input : inputs) {
    ids.insert(ids.end(), input.begin(), input.end());
    positions.resize(ids.size());
    std::iota(positions.end() - std::ssize(input), positions.end(), 0);
    lengths.push_back(static_cast<int32_t>(input.size()));
    cu_lengths.push_back(static_cast<int32_t>(ids.size()));
    request_rows.push_back(rows->allocate().value());
  }
  std::vector<TokenSlot> out_slots(ids.size());
  const std::vector<int32_t> none(inputs.size(), 0);
  const std::vector<TokenSlot> no_slots(inputs.size(), kNoSlot);
  ensure(slots->alloc_extend(none, lengths, no_slots, out_slots), "the pool is sized for every step");
  for (size_t i = 0; i < inputs.size(); ++i)
    rows->write(
        request_rows[i], 0,
        View<const TokenSlot>(out_slots).subspan(static_cast<size_t>(cu_lengths[i]), inputs[i].size()));
  const ForwardBatch batch{.mode = ForwardMode::kExtend,
                           .num_reqs = static_cast<int>(inputs.size()),
                           .num_tokens = static_cast<int>(ids.size()),
                           .max_seqlen_q = std::ranges::max(lengths),
                           .request_rows = request_rows,
                           .seqlen_kv = lengths,
                           .cu_seqlen_q = cu_lengths,
                           .positions = positions,
                           .out_slots = out_slots};
  const auto give_back = [&] {
    slots->reset();
    rows->reset();
  };
  try {
    Stream stream;
    attention->plan(batch, stream);
    model->forward({.token_ids = ids, .logit_rows = {}, .prompt_lens = lengths}, batch, *attention, {},
                   stream);
    model->hidden(hidden.view().slice(0, 0, std::ssize(ids)), stream);
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
}

std::vector<float> Embedder::State::vector_of(int64_t first, int64_t length) const {
  const auto row = [&](int64_t token) { return hidden.view()[first + token].as<const float>(); };
  std::vector<double> sum(static_cast<size_t>(spec.hidden_size), 0.0);
  if (info.pooling == Pooling::kMean)
    for (int64_t token = 0; token < length; ++token) add(row(token), sum);
  else
    add(row(info.pooling == Pooling::kCls ? 0 : length - 1), sum);
  const double count = info.pooling == Pooling::kMean ? static_cast<double>(length) : 1.0;
  std::vector<float> vector(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) vector[i] = static_cast<float>(sum[i] / count);
  Stream stream;
  for (const DenseLayer& layer : dense) {
    std::vector<float> next(static_cast<size_t>(layer.weight.shape(0)));
    kernels::linear({.x = TensorView::contiguous(vector.data(), DType::kF32, {1, std::ssize(vector)}),
                     .weight = layer.weight.view(),
                     .bias = layer.bias,
                     .out = TensorView::contiguous(next.data(), DType::kF32, {1, std::ssize(next)})},
                    stream);
    if (layer.tanh)
      for (float& x : next) x = std::tanh(x);
    vector = std::move(next);
  }
  if (info.normalize) normalize_to_length_one(vector);
  return vector;
}

Embedder::Embedder(const EmbedderConfig& config, const LoadProgress& progress)
    : state_(std::make_unique<State>(config, progress)) {}

Embedder::~Embedder() = default;

const EmbedderInfo& Embedder::info() const { return state_->info; }

const Tokenizer& Embedder::State::text_tokenizer() const {
  if (!tokenizer)
    fail(ErrorCode::kUnsupported, "the model directory has no tokenizer.json", gguf_note,
         ": expected token ids");
  return *tokenizer;
}

Embedder::TruncatedText Embedder::encode_truncated(std::string_view text) const {
  const Tokenizer& tokenizer = state_->text_tokenizer();
  std::vector<int32_t> ids = tokenizer.encode(text);
  const auto longest = static_cast<size_t>(info().max_input_tokens);
  if (ids.size() <= longest) return {.ids = std::move(ids)};
  std::vector<int32_t> cut = tokenizer.encode_truncated(text, longest);
  const size_t num_left_out = ids.size() - cut.size();
  return {.ids = std::move(cut), .num_left_out = num_left_out};
}

std::vector<int32_t> Embedder::encode(std::string_view text) const {
  std::vector<int32_t> ids = state_->text_tokenizer().encode(text);
  require(std::ssize(ids) <= info().max_input_tokens, "text of ", ids.size(), " tokens: at most ",
          info().max_input_tokens);
  return ids;
}

std::vector<float> shortened(std::vector<float> vector, int dimensions, bool normalize) {
  require(dimensions >= 1 && dimensions <= std::ssize(vector), "dimensions ", dimensions, ": 1 to ",
          vector.size());
  vector.resize(static_cast<size_t>(dimensions));
  if (normalize) normalize_to_length_one(vector);
  return vector;
}

const Tokenizer* Embedder::tokenizer() const { return state_->tokenizer ? &*state_->tokenizer : nullptr; }

void Embedder::check(std::span<const std::vector<int32_t>> inputs) const { state_->check(inputs); }

std::vector<std::vector<float>> Embedder::embed(std::span<const std::vector<int32_t>> inputs) {
  state_->check(inputs);
  const std::lock_guard lock(state_->one_at_a_time);
  std::vector<std::vector<float>> vectors;
  vectors.reserve(inputs.size());
  while (vectors.size() < inputs.size()) {
    const size_t begin = vectors.size();
    size_t end = begin;
    for (int64_t tokens = 0; end < inputs.size() && end - begin < static_cast<size_t>(info().max_step_inputs);
         ++end) {
      tokens += std::ssize(inputs[end]);
      if (tokens > info().max_step_tokens) break;
    }
    state_->run(inputs.subspan(begin, end - begin));
    int64_t first = 0;
    for (; vectors.size() < end; first += std::ssize(inputs[vectors.size() - 1]))
      vectors.push_back(state_->vector_of(first, std::ssize(inputs[vectors.size()])));
  }
  // Whoever writes to the files changes the model under it.
  state_->model->check_weights();
  return vectors;
}

}  // namespace attend
