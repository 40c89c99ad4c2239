#include "attend/model/config/rank_spec.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "attend/base/error.h"

namespace attend {
namespace {

// Largest number of ranks that an error lists as possible.
constexpr int kMaxListedRanks = 16;

// Divides the sizes of a model, and keeps the first reason why that is impossible.
class Divider {
 public:
  explicit Divider(int num_ranks) : num_ranks_(num_ranks) {}

  const std::string& reason() const { return reason_; }

  void operator()(AttentionSpec& spec) {
    if (spec.qk_norm == QkNormSpan::kToken) return refuse("q and k norms over all heads of a token");
    divide(spec.num_q_heads, "query heads");
    if (spec.num_kv_heads % num_ranks_ == 0)
      spec.num_kv_heads /= num_ranks_;
    else if (num_ranks_ % spec.num_kv_heads == 0)
      spec.num_kv_heads = 1;
    else
      refuse(std::to_string(spec.num_kv_heads) + " key-value heads");
  }
  void operator()(MlaSpec& spec) { divide(spec.num_heads, "heads"); }
  void operator()(GatedDeltaSpec&) {}
  void operator()(ShortConvSpec&) {}
  void operator()(Mamba2Spec&) {}
  void operator()(AttentionMamba2Spec& spec) { (*this)(spec.attention); }
  void operator()(GatedMlpSpec& spec) { divide(spec.intermediate_size, "intermediate features"); }
  void operator()(PlainMlpSpec& spec) { divide(spec.intermediate_size, "intermediate features"); }
  void operator()(MoeMlpSpec& spec) {
    divide(spec.intermediate_size, "intermediate features of an expert");
    divide(spec.shared_intermediate_size, "intermediate features of the shared expert");
  }
  void operator()(ParallelMoeSpec& spec) {
    (*this)(spec.dense);
    (*this)(spec.moe);
  }
  void operator()(std::monostate) {}

 private:
  void divide(int& size, std::string_view name) {
    if (size % num_ranks_ != 0) return refuse(std::to_string(size) + " " + std::string(name));
    size /= num_ranks_;
  }
  void refuse(const std::string& reason) {
    if (reason_.empty()) reason_ = reason;
  }

  int num_ranks_;
  std::string reason_;
};

// Divides `model`, or returns why that is impossible.
std::string divide(ModelSpec& model, int num_ranks) {
  Divider divider(num_ranks);
  for (LayerSpec& layer : model.layers) {
    std::visit(divider, layer.mixer);
    std::visit(divider, layer.mlp);
  }
  if (divider.reason().empty() && model.head_size() < num_ranks)
    return std::to_string(model.head_size()) + " tokens of the head";
  return divider.reason();
}

}  // namespace

ModelSpec rank_spec(const ModelSpec& whole, int num_ranks) {
  require(num_ranks >= 1, "tp_size ", num_ranks, ": expected at least 1");
  ModelSpec model = whole;
  if (num_ranks == 1) return model;
  const std::string reason = divide(model, num_ranks);
  if (reason.empty()) return model;
  std::string possible = "1";
  for (int size = 2; size <= kMaxListedRanks; ++size)
    if (ModelSpec other = whole; divide(other, size).empty()) possible += ", " + std::to_string(size);
  fail(ErrorCode::kUnsupported, "tp_size ", num_ranks, ": ", whole.architecture, " has ", reason, ", which ",
       num_ranks, " ranks cannot divide; possible: ", possible);
}

}  // namespace attend
