// DraftSpec: a draft head, a small model that reads hidden states of a target and predicts its next tokens.
#pragma once

#include <cstdint>
#include <vector>

#pragma GCC visibility push(default)
namespace attend {

// Origin of the hidden states of a step: the target, or the draft itself for tokens that it predicted.
enum class HiddenSource : uint8_t { kTarget, kDraft };

// Place where the embedding e of a token joins the hidden state h of the token before it.
enum class DraftJoin : uint8_t {
  // The residual stream is W (norm(e) ++ norm(h)) (multi-token prediction, EAGLE).
  kProjection,
  // The residual stream is x = W h, or x = h if h is the draft's own state. Attention of layer 0 reads
  // norm(e) ++ norm(x) (EAGLE-3).
  kAttention,
};

// Input of a draft head and the state that it returns. A row at position i has token i + 1 and the hidden
// state of token i, and predicts token i + 2. Weights are named by DecoderNames.
struct DraftSpec {
  DraftJoin join = DraftJoin::kProjection;

  // Hidden states of the target per token, adjacent in a row, each of target_hidden_size features.
  int num_hidden = 1;
  int target_hidden_size = 0;
  // True: the target's residual stream before num_hidden of its layers; false: after the target's final norm.
  bool reads_stream = false;
  // eagle_aux_hidden_state_layer_ids of config.json. Empty: layers 2, L / 2 and L - 3 of the target's L.
  std::vector<int> aux_layer_ids = {};
  // HiddenOutput::before_layers of the target; set by fit_draft(). Empty unless reads_stream.
  std::vector<int> before_layers = {};

  bool hidden_first = false;  // kProjection: the matrix multiplies h ++ e instead of e ++ h
  bool bias = false;          // of the matrix
  bool input_norms = true;    // false: e and h are not normalized (EAGLE)
  // Norms of the target's hidden states before the matrix: one per state, or one over all of them.
  bool norm_per_state = false, norm_over_states = false;
  bool stream_normed = false;           // kAttention: the residual stream is norm(x)
  bool clears_first_embedding = false;  // e = 0 at position 0
  // The returned hidden state, which the next step reads, is that after the final norm, not before it.
  bool returns_normed = false;

  // True: table and head are always the target's, also if the files have copies. False: those of the files,
  // or the target's if the files have none.
  bool shares_vocab = false;
  bool own_embedding = false;  // set when files are opened
  int head_size = 0;           // rows of the head; 0: vocab_size
  int first_layer = 0;         // index of the draft's layer 0 in tensor names

  int target_width() const { return num_hidden * target_hidden_size; }
};

struct ModelSpec;

// Completes a draft for a target: layers whose residual stream it reads, positions up to the target's
// context. Throws Error(kInvalidArgument) if vocabulary, hidden size or layers do not match the target's.
ModelSpec fit_draft(ModelSpec draft, const ModelSpec& target);

}  // namespace attend
#pragma GCC visibility pop
