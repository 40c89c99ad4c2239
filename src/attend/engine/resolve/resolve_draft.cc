#include "attend/engine/resolve/resolve_draft.h"

#include <optional>

#include "attend/base/error.h"
#include "attend/base/log.h"

namespace attend {
namespace {

void check_draft_model(const EngineConfig& config, const ModelSpec& draft) {
  const std::string name = config.speculation.draft_model_path.string();
  if (draft.classifier || draft.bidirectional())
    fail(ErrorCode::kUnsupported, "speculative_draft_model_path ", name, ": ", draft.architecture,
         " makes no text");
  if (draft.has_states())
    fail(ErrorCode::kUnsupported, "speculative_draft_model_path ", name, ": ", draft.architecture,
         " has recurrent layers, whose states cannot drop rejected tokens");
}

}  // namespace

ResolvedExecutor resolve_draft(const EngineConfig& config, const EngineInfo& info, int page_size) {
  const SpeculativeOptions& options = info.speculation;
  const bool has_path = !options.draft_model_path.empty();
  require(has_path || config.draft_model, "speculative_draft_model_path: required by speculative_algorithm ",
          to_string(*options.algorithm));
  const std::shared_ptr<const Checkpoint> checkpoint =
      has_path ? open_checkpoint(options.draft_model_path) : nullptr;
  const ModelSpec model = config.draft_model ? *config.draft_model : read_config(*checkpoint);
  check_draft_model(config, model);

  EngineConfig draft = config;
  draft.backend_options = {.attention_backend = options.draft_attention_backend};
  // Both models use the same rows and token slots, but only the target's windows are tracked.
  draft.disable_hybrid_swa_memory = true;
  draft.disable_cascade_attention = true;
  SharedSizes sizes{.limits = info.limits, .context_length = info.context_length, .page_size = page_size};
  // Only the last token of a request has logits.
  sizes.limits.max_draft_tokens = 0;
  const bool has_files = has_path && config.load_format != LoadFormat::kDummy;
  ResolvedExecutor resolved = resolve_executor(draft, model, has_files ? checkpoint : nullptr, sizes);
  resolved.is_draft = true;
  if (model.max_context_len() < info.context_length)
    log_warning("the draft model has ", model.max_context_len(),
                " positions: longer requests continue without drafts");
  return resolved;
}

void check_draft_vocabulary(const EngineConfig& config, const TargetVocabulary& target,
                            const ModelSpec& draft_spec) {
  const std::filesystem::path& path = config.speculation.draft_model_path;
  const std::optional<Tokenizer> draft =
      target.tokenizer == nullptr || path.empty() ? std::nullopt : Tokenizer::find(*open_checkpoint(path));
  if (!draft) {
    require(draft_spec.vocab_size == target.vocab_size, "speculative_draft_model_path ", path.string(),
            ": vocab_size ", draft_spec.vocab_size, ": expected the target's, ", target.vocab_size);
    return;
  }
  const int32_t num_tokens = target.tokenizer->vocab_size();
  require(draft->vocab_size() == num_tokens, "speculative_draft_model_path ", path.string(),
          ": a tokenizer of ", draft->vocab_size(), " tokens, expected the target's ", num_tokens);
  for (int32_t id = 0; id < num_tokens; ++id)
    require(draft->token(id) == target.tokenizer->token(id), "speculative_draft_model_path ", path.string(),
            ": token ", id, " is '", draft->token(id), "', expected the target's, '",
            target.tokenizer->token(id), "'");
}

}  // namespace attend
