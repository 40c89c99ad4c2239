#include "attend/model/decoder.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>

#include "tests/support/count_allocations.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::expect_error;

// Attention in which each token sees only itself: returns its own value for every query head of a group. The
// cache holds one step, with token t in slot t.
class SelfAttention : public AttentionBackend {
 public:
  SelfAttention() { std::iota(slots_.begin(), slots_.end(), 0); }

  void plan(const ForwardBatch&, Stream&) override {}
  KvDestination destination(const AttentionLayer&, const ForwardBatch& batch) override {
    return {
        .k = k_, .v = v_, .slots = View<const int32_t>(slots_).first(static_cast<size_t>(batch.num_tokens))};
  }
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch&,
               Stream&) override {
    if (num_calls < kMaxCalls) layers[num_calls] = layer;
    ++num_calls;
    last = input;
    const int64_t group = layer.num_q_heads / layer.num_kv_heads;
    for (int64_t token = 0; token < input.q.shape[0]; ++token)
      for (int64_t head = 0; head < input.q.shape[1]; ++head)
        std::copy_n(v_.view()[token][0][head / group].as<float>(), input.out.shape[2],
                    input.out[token][head].as<float>());
  }

  static constexpr size_t kMaxCalls = 8;
  AttentionLayer layers[kMaxCalls];
  size_t num_calls = 0;
  AttentionInput last;

 private:
  static constexpr int64_t kSlots = 8, kKvHeads = 2, kHeadDim = 8;
  Tensor k_ = Tensor::zeros({kSlots, 1, kKvHeads, kHeadDim}, DType::kF32);
  Tensor v_ = Tensor::zeros({kSlots, 1, kKvHeads, kHeadDim}, DType::kF32);
  std::array<int32_t, kSlots> slots_{};
};

ModelSpec tiny_config() {
  ModelSpec spec;
  spec.architecture = "Qwen3ForCausalLM";
  spec.hidden_size = 16;
  spec.vocab_size = 32;
  spec.max_position_embeddings = 64;
  const AttentionSpec attention{.num_q_heads = 4,
                                .num_kv_heads = 2,
                                .head_dim = 8,
                                .scale = 0.35f,
                                .qkv_bias = true,
                                .output_bias = true,
                                .qk_norm = QkNormSpan::kHead};
  AttentionSpec windowed = attention;
  windowed.window_left = 15;
  const GatedMlpSpec mlp{.intermediate_size = 24, .bias = true};
  spec.layers = {{attention, mlp}, {windowed, mlp}, {attention, mlp}};
  spec.ropes = {RopeConfig{.rotary_dim = 8}};
  return spec;
}

std::unique_ptr<Model> dummy(const ModelSpec& config) {
  return load_model("no directory", config, LoadFormat::kDummy);
}

constexpr BatchLimits kLimits{.max_reqs = 4, .max_tokens = 8, .max_kv_tokens = 64};

// The new tokens of one request, with logits for some of them.
struct Step {
  std::vector<int32_t> token_ids, positions, rows, cu_seqlen_q, seqlen_kv, prompt_lens;
  Tensor logits;
  ModelInput input;
  ForwardBatch batch;

  Step(std::vector<int32_t> ids, std::vector<int32_t> logit_rows, int first = 0)
      : token_ids(std::move(ids)), rows(std::move(logit_rows)) {
    const auto num_tokens = static_cast<int32_t>(token_ids.size());
    for (int32_t i = 0; i < num_tokens; ++i) positions.push_back(first + i);
    cu_seqlen_q = {0, num_tokens};
    seqlen_kv = {first + num_tokens};
    prompt_lens = {num_tokens};
    logits = Tensor::zeros({std::ssize(rows), 32}, DType::kF32);
    input = {.token_ids = token_ids, .logit_rows = rows, .prompt_lens = prompt_lens};
    batch.mode = ForwardMode::kExtend;
    batch.num_reqs = 1;
    batch.num_tokens = num_tokens;
    batch.max_seqlen_q = num_tokens;
    batch.seqlen_kv = seqlen_kv;
    batch.cu_seqlen_q = cu_seqlen_q;
    batch.positions = positions;
  }
  Step(const Step&) = delete;

  void run(Model& model, AttentionBackend& attention) {
    Stream stream;
    model.forward(input, batch, attention, logits, stream);
  }
};

TEST(DecoderModel, CallsAttentionOncePerLayerInOrderWithItsGeometry) {
  const auto model = dummy(tiny_config());
  model->prepare(kLimits);
  SelfAttention attention;
  Step({1, 2, 3}, {2}).run(*model, attention);
  ASSERT_EQ(attention.num_calls, 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(attention.layers[i].layer_id, i);
    EXPECT_EQ(attention.layers[i].window_left, i == 1 ? 15 : -1);
    EXPECT_EQ(attention.layers[i].num_kv_heads, 2);
  }
  EXPECT_EQ(attention.last.q.to_string(), "float32[3, 4, 8] on cpu");
  EXPECT_EQ(attention.last.out.to_string(), "float32[3, 4, 8] on cpu");
}

TEST(DecoderModel, LogitsDoNotDependOnOtherRequestedRows) {
  const auto model = dummy(tiny_config());
  model->prepare(kLimits);
  SelfAttention attention;
  Step all({5, 6, 7, 8}, {0, 1, 2, 3}), last({5, 6, 7, 8}, {3}), swapped({5, 6, 7, 8}, {3, 0});
  all.run(*model, attention);
  last.run(*model, attention);
  swapped.run(*model, attention);
  float largest = 0.0f;
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(last.logits.view()[0].as<float>()[i], all.logits.view()[3].as<float>()[i]);
    EXPECT_EQ(swapped.logits.view()[0].as<float>()[i], all.logits.view()[3].as<float>()[i]);
    EXPECT_EQ(swapped.logits.view()[1].as<float>()[i], all.logits.view()[0].as<float>()[i]);
    largest = std::max(largest, std::abs(last.logits.view()[0].as<float>()[i]));
  }
  EXPECT_GT(largest, 1e-3f) << "logits of dummy weights are not all 0";
  EXPECT_LT(largest, 1e3f);
}

TEST(DecoderModel, WithoutLogitRowsRunsEveryLayerAndWritesNoLogits) {
  const auto model = dummy(tiny_config());
  model->prepare(kLimits);
  SelfAttention attention;
  Step({1, 2}, {}).run(*model, attention);
  EXPECT_EQ(attention.num_calls, 3u);
}

TEST(DecoderModel, IdleStepDoesNothing) {
  const auto model = dummy(tiny_config());
  model->prepare(kLimits);
  SelfAttention attention;
  Step({}, {}).run(*model, attention);
  EXPECT_EQ(attention.num_calls, 0u);
}

TEST(DecoderModel, AllocatesOnlyInTheFirstStepOfASize) {
  for (const RopeType type : {RopeType::kDefault, RopeType::kDynamic}) {
    ModelSpec config = tiny_config();
    config.ropes[0].type = type;
    config.ropes[0].factor = 2.0;
    config.ropes[0].original_max_position_embeddings = 2;
    const auto model = dummy(config);
    model->prepare(kLimits);
    SelfAttention attention;
    Step first({1, 2, 3}, {2}), second({4, 5, 6}, {1}, 7);
    first.run(*model, attention);
    const int64_t before = testing_support::num_allocations();
    second.run(*model, attention);
    EXPECT_EQ(testing_support::num_allocations() - before, 0);
  }
}

TEST(DecoderModel, RejectsAnUnpreparedStep) {
  const auto model = dummy(tiny_config());
  SelfAttention attention;
  Step one({1}, {0}), nine(std::vector<int32_t>(9, 1), {0}), far({1}, {0}, 64);
  expect_error(ErrorCode::kInternal, {"prepare()"}, [&] { one.run(*model, attention); });
  model->prepare(kLimits);
  expect_error(ErrorCode::kInvalidArgument, {"num_tokens 9", "at most 8"},
               [&] { nine.run(*model, attention); });
  expect_error(ErrorCode::kInvalidArgument, {"position 64", "0 to 63"}, [&] { far.run(*model, attention); });
  EXPECT_EQ(attention.num_calls, 0u);
}

TEST(DecoderModel, RejectsZeroLimits) {
  const auto model = dummy(tiny_config());
  expect_error(ErrorCode::kInvalidArgument, {"0 tokens per step", "at least 1"},
               [&] { model->prepare({.max_reqs = 1, .max_tokens = 0, .max_kv_tokens = 1}); });
  expect_error(ErrorCode::kInvalidArgument, {"0 of K/V", "at least 1"},
               [&] { model->prepare({.max_reqs = 1, .max_tokens = 1, .max_kv_tokens = 0}); });
}

TEST(DecoderModel, RejectsInputsThatDoNotMatchTheBatch) {
  const auto model = dummy(tiny_config());
  model->prepare(kLimits);
  SelfAttention attention;
  Step ids({1, 2}, {0}), rows({1, 2}, {0, 1, 0}), narrow({1, 2}, {0}), many({1, 2}, {0});
  ids.input.token_ids = ids.input.token_ids.first(1);
  narrow.logits = Tensor::zeros({1, 31}, DType::kF32);
  many.logits = Tensor::zeros({2, 32}, DType::kF32);
  expect_error(ErrorCode::kInvalidArgument, {"token_ids: 1", "2 tokens"},
               [&] { ids.run(*model, attention); });
  expect_error(ErrorCode::kInvalidArgument, {"logit_rows: 3", "2 tokens"},
               [&] { rows.run(*model, attention); });
  expect_error(ErrorCode::kInvalidArgument, {"logits float32[1, 31]", "float32[1, 32]"},
               [&] { narrow.run(*model, attention); });
  expect_error(ErrorCode::kInvalidArgument, {"logits float32[2, 32]", "float32[1, 32]"},
               [&] { many.run(*model, attention); });
}

}  // namespace
}  // namespace attend
