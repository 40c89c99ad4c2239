#include "attend/engine/resolve/resolve_draft.h"

#include <optional>
#include <utility>

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

// Completes a draft head for its target. `path`: of its files.
ModelSpec fit_head(SpeculativeAlgorithm algorithm, ModelSpec head, const ModelSpec& target,
                   const std::filesystem::path& path) {
  require(head.draft.has_value(), "draft_model: ", head.architecture, " is no draft head");
  const bool is_eagle3 = head.draft->join == DraftJoin::kAttention;
  require(is_eagle3 == (algorithm == SpeculativeAlgorithm::kEagle3), "speculative_draft_model_path ",
          path.string(), ": ", head.architecture, ": expected speculative_algorithm ",
          is_eagle3 ? "EAGLE3" : "EAGLE or NEXTN");
  return fit_draft(std::move(head), target);
}

}  // namespace

ResolvedExecutor resolve_draft(const EngineConfig& config, const ModelSpec& target_spec,
                               const EngineInfo& info, ResolvedExecutor& target) {
  const SpeculativeOptions& options = info.speculation;
  const SpeculativeAlgorithm algorithm = *options.algorithm;
  const bool is_head = has_draft_head(algorithm);
  // Layers for multi-token prediction are in the target's files.
  const bool in_target =
      is_head && algorithm != SpeculativeAlgorithm::kEagle3 && options.draft_model_path.empty();
  const std::filesystem::path path = in_target ? config.model_path : options.draft_model_path;
  require(!path.empty() || config.draft_model,
          "speculative_draft_model_path: required by speculative_algorithm ", to_string(algorithm));
  const std::shared_ptr<const Checkpoint> checkpoint = path.empty() ? nullptr : open_checkpoint(path);
  ModelSpec model = config.draft_model ? *config.draft_model
                    : is_head          ? read_draft_config(*checkpoint)
                                       : read_config(*checkpoint);
  if (is_head) model = fit_head(algorithm, std::move(model), target_spec, path);
  check_draft_model(config, model);

  EngineConfig draft = config;
  draft.backend_options = {.attention_backend = options.draft_attention_backend};
  // Both models use the same rows and token slots, but only the target's windows are tracked.
  draft.disable_hybrid_swa_memory = true;
  draft.disable_cascade_attention = true;
  // The head multiplies the target's hidden states.
  if (is_head && config.on_gpu() && !config.dtype && model.dtype != target.info.dtype)
    draft.dtype = target.info.dtype;
  SharedSizes sizes{.limits = info.limits,
                    .context_length = info.context_length,
                    .page_size = target.info.resolution.page_size,
                    .rank = target.info.rank};
  // Only the last token of a request has logits, or those that continue a tree. Padded steps have rows of
  // logits for all tokens: for each request the last one and accepted ones before it.
  sizes.limits.max_tree_tokens = 0;
  if (options.eagle_topk > 1) {
    const int num_draft_reqs = sizes.limits.max_draft_reqs;
    sizes.limits.max_draft_tokens = num_draft_reqs * (options.eagle_topk - 1);
    sizes.limits.max_tree_tokens = std::max(1, options.eagle_topk * (options.num_steps - 1));
    sizes.limits.max_tokens =
        std::max(sizes.limits.max_tokens, num_draft_reqs * sizes.limits.max_tree_tokens);
  }
  const bool has_files = checkpoint && config.load_format != LoadFormat::kDummy;
  ResolvedExecutor resolved = resolve_executor(draft, model, has_files ? checkpoint : nullptr, sizes);
  resolved.is_draft = true;
  if (in_target) target.config.placement.has_prediction = true;
  if (model.draft) {
    target.config.hidden_states = resolved.config.hidden_states = true;
    target.config.hidden_layers = model.draft->before_layers;
    if (!model.draft->returns_normed) resolved.config.hidden_layers = {model.num_layers()};
  }
  if (model.max_context_len() < info.context_length && sizes.rank == 0)
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
