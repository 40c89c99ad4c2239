// Drafts that are trees.
#include <algorithm>

#include "attend/engine/speculation/model_drafter.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/sampling/logprobs.h"
#include "attend/tensor/cuda.h"

namespace attend {

void ModelDrafter::draw_trees() {
  if (trees_.size() < chains_.size()) trees_.resize(chains_.size());
  for (size_t i = 0; i < chains_.size(); ++i) trees_[i].begin(chains_[i].topk);
  const int num_levels = longest();
  for (int level = 1; level <= num_levels; ++level) {
    if (level > 1) {
      build_tree_nodes(level - 1);
      if (batch_.requests.empty()) return;
      launch();
    }
    add_levels(level);
  }
}

void ModelDrafter::build_tree_nodes(int level) {
  begin_batch(ForwardMode::kTargetVerify);
  batch_.hidden_source = HiddenSource::kDraft;
  for (size_t i = 0; i < chains_.size(); ++i) {
    Chain& chain = chains_[i];
    const DraftTree& tree = trees_[i];
    const int num_rows = tree.num_last_nodes();
    chain.is_computed = chain.length > level && num_rows > 0;
    if (!chain.is_computed) continue;
    const auto num_nodes = static_cast<int>(tree.nodes().size());
    chain.row = static_cast<int>(batch_.rules.size());
    chain.token = batch_.num_tokens();
    if (shift_ > 0)
      batch_.hidden_rows.push_back({.first_token = chain.token, .rows = tree_states(i, 0, num_nodes)});
    for (const DraftTree::Node& node : tree.nodes()) {
      batch_.token_ids.push_back(node.token);
      batch_.tree_parents.push_back(node.parent);
    }
    batch_.requests.push_back({.row = chain.request->row,
                               .num_computed = num_known(*chain.request),
                               .num_new = num_nodes,
                               .prompt_len = chain.request->num_prompt,
                               .num_logit_rows = num_rows});
    batch_.rules.insert(batch_.rules.end(), static_cast<size_t>(num_rows), {.temperature = 0.0f});
  }
}

void ModelDrafter::add_levels(int level) {
  const auto num_rows = std::ssize(batch_.rules);
  if (num_rows == 0) return;
  const auto rows = static_cast<size_t>(num_rows);
  const View<int32_t> num_top = num_top_.span<int32_t>().first(rows);
  std::ranges::fill(num_top, topk_);
  const View<TokenLogprob> tops(reinterpret_cast<TokenLogprob*>(tops_.as<int64_t>()),
                                rows * kernels::kMaxTopLogprobs);
  kernels::top_logprobs(output_.logits.slice(0, 0, num_rows), num_top, log_sums_.span<float>().first(rows),
                        tops, executor_.stream());
  if (executor_.on_gpu()) cuda::synchronize(executor_.stream());
  for (size_t i = 0; i < chains_.size(); ++i) {
    const Chain& chain = chains_[i];
    DraftTree& tree = trees_[i];
    if (!chain.is_computed) continue;
    const int num_chain_rows = level == 1 ? 1 : tree.num_last_nodes();
    level_.clear();
    for (int row = chain.row; row < chain.row + num_chain_rows; ++row)
      for (int j = 0; j < chain.topk; ++j) {
        TokenLogprob top = tops[static_cast<size_t>(row * kernels::kMaxTopLogprobs + j)];
        if (top.token_id >= 0 && !head_tokens().empty())
          top.token_id = head_tokens()[static_cast<size_t>(top.token_id)];
        level_.push_back(top);
      }
    tree.add_level(level_, vocab_size_);
    if (shift_ > 0 && level < chain.length) keep_states(i, level);
  }
}

// A node reads the state of the one before it. Level 1 follows the last token of the catch-up.
void ModelDrafter::keep_states(size_t tree, int level) {
  const std::span<const DraftTree::Node> nodes = trees_[tree].nodes();
  const auto num_nodes = static_cast<int>(nodes.size());
  for (int node = num_nodes - trees_[tree].num_last_nodes(); node < num_nodes; ++node) {
    const int from = chains_[tree].token + (level == 1 ? 0 : nodes[static_cast<size_t>(node)].parent);
    kernels::copy_rows(output_.hidden_states.slice(0, from, from + 1), tree_states(tree, node, node + 1),
                       executor_.stream());
  }
}

TensorView ModelDrafter::tree_states(size_t tree, int begin, int end) {
  const int64_t most_nodes = int64_t{topk_} * (num_steps_ - 1);
  if (tree_states_.view().empty()) {
    const TensorView inputs = output_.hidden_states;
    const std::initializer_list<int64_t> shape = {max_reqs_ * most_nodes, inputs.shape[1]};
    tree_states_ = executor_.on_gpu() ? cuda::empty(shape, inputs.dtype, executor_.device())
                                      : Tensor::empty(shape, inputs.dtype);
  }
  const int64_t first = static_cast<int64_t>(tree) * most_nodes;
  return tree_states_.view().slice(0, first + begin, first + end);
}

View<const int32_t> ModelDrafter::head_tokens() {
  const View<const int32_t> tokens = executor_.head_tokens();
  if (!executor_.on_gpu() || tokens.empty()) return tokens;
  if (head_tokens_.empty()) {
    head_tokens_.resize(tokens.size());
    const auto count = static_cast<int64_t>(tokens.size());
    cuda::copy(
        TensorView::contiguous(const_cast<int32_t*>(tokens.data()), DType::kI32, {count}, executor_.device()),
        TensorView::contiguous(head_tokens_.data(), DType::kI32, {count}), executor_.stream());
    cuda::synchronize(executor_.stream());
  }
  return head_tokens_;
}

void ModelDrafter::collect_trees() {
  for (size_t i = 0; i < chains_.size(); ++i) {
    const Chain& chain = chains_[i];
    trees_[i].select(chain.num_tokens, chain.request->draft);
    const int known = num_known(*chain.request);
    group_.set_num_tokens(chain.request->row, known, known);
  }
}

}  // namespace attend
