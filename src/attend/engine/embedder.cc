#include "attend/engine/embedder.h"

#include <mutex>
#include <utility>

#include "attend/base/error.h"
#include "attend/checkpoint/model_folder.h"
#include "attend/engine/engine.h"
#include "attend/engine/output/scoring.h"
#include "attend/engine/resolve/resolve_embedder.h"

namespace attend {

struct Embedder::State {
  State(ResolvedEmbedder resolved, const std::filesystem::path& model_path, const LoadProgress& progress)
      : info(std::move(resolved.info)),
        engine(resolved.engine, {.resolved = {}, .weights = progress, .graphs = {}}) {
    if (engine.tokenizer() == nullptr) tokenizer_note = note_on_missing(MissingFile::kTokenizer, model_path);
    add_engine_info(engine.info(), info);
  }

  const Tokenizer& text_tokenizer() const;

  EmbedderInfo info;
  std::string tokenizer_note;  // note on a model directory without a tokenizer
  std::mutex embed_mutex;
  Engine engine;
};

Embedder::Embedder(const EmbedderConfig& config, const LoadProgress& progress)
    : state_(std::make_unique<State>(resolve_embedder(config), config.model_path, progress)) {}

Embedder::~Embedder() = default;

const EmbedderInfo& Embedder::info() const { return state_->info; }
const Tokenizer* Embedder::tokenizer() const { return state_->engine.tokenizer(); }

const Tokenizer& Embedder::State::text_tokenizer() const {
  if (engine.tokenizer() == nullptr)
    fail(ErrorCode::kUnsupported, "the model directory has no tokenizer.json", tokenizer_note,
         ": expected token ids");
  return *engine.tokenizer();
}

Embedder::TruncatedText Embedder::encode_truncated(std::string_view text) const {
  TruncatedText encoded;
  encoded.ids = state_->text_tokenizer().encode_truncated(text, static_cast<size_t>(info().max_input_tokens),
                                                          TruncationSide::kRight,
                                                          /*add_special_tokens=*/true, &encoded.is_truncated);
  return encoded;
}

std::vector<int32_t> Embedder::encode(std::string_view text) const {
  const EngineInfo& engine = state_->engine.info();
  require(text.size() <= engine.max_prompt_bytes(), "text of ", text.size(), " bytes: the context holds ",
          engine.context_length, " tokens of at most ", engine.max_token_bytes, " bytes");
  std::vector<int32_t> ids = state_->text_tokenizer().encode(text);
  require(std::ssize(ids) <= info().max_input_tokens, "text of ", ids.size(), " tokens: at most ",
          info().max_input_tokens);
  return ids;
}

void Embedder::check(std::span<const std::vector<int32_t>> inputs) const {
  check_inputs(inputs, info().max_input_tokens, state_->engine.model_spec().vocab_size);
}

std::vector<float> Embedder::score(std::span<const std::string> firsts, std::span<const std::string> seconds,
                                   const PairOptions& options) {
  const ScoreInputs inputs = encode_pairs(info(), state_->text_tokenizer(), firsts, seconds, options);
  return pair_scores(info(), inputs, embed(inputs.ids, inputs.token_types));
}

std::vector<std::vector<float>> Embedder::embed(std::span<const std::vector<int32_t>> inputs,
                                                std::span<const std::vector<int32_t>> token_types) {
  check(inputs);
  std::vector<std::vector<float>> vectors(inputs.size());
  if (inputs.empty()) return vectors;
  const std::lock_guard lock(state_->embed_mutex);
  Engine& engine = state_->engine;
  PoolingRequest request;
  request.inputs.assign(inputs.begin(), inputs.end());
  request.token_types.assign(token_types.begin(), token_types.end());
  size_t num_left = inputs.size();
  std::string failure;
  const OutputSink sink = [&](const RequestOutput& output) {
    --num_left;
    if (output.finish_reason == FinishReason::kStop)
      vectors[static_cast<size_t>(output.index)].assign(output.vector.begin(), output.vector.end());
    else
      failure = output.message;
  };
  const RequestId id = engine.submit(std::move(request));
  try {
    while (num_left > 0) engine.step(sink);
  } catch (...) {
    engine.abort(id, [](const RequestOutput&) {});
    throw;
  }
  if (!failure.empty()) fail(ErrorCode::kInternal, failure);
  // A checkpoint file that is overwritten in place changes the weights.
  engine.check_weights();
  return vectors;
}

}  // namespace attend
