#include "attend/backends/kernel_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/attention/resolver.h"
#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "tests/backends/small_model.h"

namespace attend::conformance {
namespace {

using testing::HasSubstr;

// One row for each kind of index (request rows, CSR, page table), and the reference.
constexpr std::string_view kKinds[] = {"cpu", "flashinfer", "fa3", "torch_native"};

// Steps like an engine: prompts in two chunks, decode together with a prompt, then decode.
void run_steps(SmallModel& model, AttentionBackend& backend) {
  model.step(backend, ForwardMode::kExtend, {9, 0});
  model.step(backend, ForwardMode::kExtend, {8, 5});
  model.step(backend, ForwardMode::kMixed, {1, 12});
  for (int i = 0; i < 4; ++i) model.step(backend, ForwardMode::kDecode, {1, 1});
}
const std::vector<int> kGrown{22, 21};

TEST(KernelBackend, MatchesTheReferenceInEveryStep) {
  for (std::string_view name : kKinds)
    for (int page_size : {1, 4, 16}) {
      SCOPED_TRACE(testing::Message() << name << ", page size " << page_size);
      SmallModel model({small_layer(0), small_layer(1)}, kGrown, page_size);
      const auto backend = model.create(name);
      run_steps(model, *backend);
      model.expect_reference_results();
    }
}

TEST(KernelBackend, SupportsLayersWithOtherMasksAndHeads) {
  for (std::string_view name : kKinds) {
    SCOPED_TRACE(name);
    std::vector<AttentionLayer> layers{small_layer(0), small_layer(1), small_layer(2), small_layer(3)};
    layers[1].window_left = 5;
    layers[2].chunk = 8;
    layers[3].num_q_heads = layers[3].num_kv_heads = 3;
    layers[3].head_dim_v = 64;
    SmallModel model(layers, kGrown, 4);
    const auto backend = model.create(name);
    run_steps(model, *backend);
    model.expect_reference_results();
  }
}

TEST(KernelBackend, TranslatesSlotsForLayersInTheWindowHalf) {
  for (std::string_view name : kKinds)
    for (int page_size : {1, 4}) {
      SCOPED_TRACE(testing::Message() << name << ", page size " << page_size);
      std::vector<AttentionLayer> layers{small_layer(0), small_layer(1)};
      layers[1].window_left = 6;
      SmallModel model(layers, kGrown, page_size, /*halves=*/true);
      const auto backend = model.create(name);
      run_steps(model, *backend);
      model.expect_reference_results();
    }
}

TEST(KernelBackend, DoesNothingInAnIdleStep) {
  for (std::string_view name : kKinds) {
    SmallModel model({small_layer(0)}, kGrown, 4);
    const auto backend = model.create(name);
    Stream stream;
    StepArrays idle;
    idle.mode = ForwardMode::kIdle;
    idle.cu_seqlen_q = {0};
    backend->plan(idle.batch(), stream);
    backend->forward(model.layers()[0], {}, idle.batch(), stream);  // empty views: no memory may be accessed
    run_steps(model, *backend);
    model.expect_reference_results();
  }
}

TEST(KernelBackend, DoesNotWriteToThePool) {
  for (std::string_view name : kKinds) {
    std::vector<AttentionLayer> layers{small_layer(0), small_layer(1)};
    layers[1].window_left = 6;
    SmallModel model(layers, kGrown, 4, /*halves=*/true);
    const auto backend = model.create(name);
    Stream stream;
    const ForwardBatch batch = model.prepare(ForwardMode::kExtend, {3, 0}).batch();
    backend->plan(batch, stream);
    for (size_t i = 0; i < layers.size(); ++i) {
      const LayerKv kv = model.context().pool.layer(static_cast<int>(i));
      const KvDestination to = backend->destination(model.layers()[i], batch);
      EXPECT_EQ(to.k.data, kv.k.data);
      EXPECT_EQ(to.v.data, kv.v.data);
      EXPECT_EQ(to.slots.data(), raw(batch.out_slots).data());
      EXPECT_EQ(to.slot_map, kv.slot_map);
      backend->forward(model.layers()[i], model.input(i).attend, batch, stream);
      for (float value : std::span(kv.k.as<float>(), static_cast<size_t>(kv.k.num_elements())))
        ASSERT_EQ(value, 0.0f);
    }
  }
}

TEST(KernelBackend, SplitsAtFixedPositionsIfDeterministic) {
  // One long request by itself, and together with another. Balanced splits would change; fixed ones do not.
  SmallModel single({small_layer(0)}, {1500, 1}, 16), batched({small_layer(0)}, {1500, 900}, 16);
  std::vector<std::vector<float>> outputs;
  for (SmallModel* model : {&single, &batched}) {
    const BackendEntry& entry = *find_backend(backend_table(), "cpu");
    BackendContext context = model->context();
    context.config = model->config(/*deterministic=*/true);
    const auto backend = entry.create(context);
    if (model == &single) {
      model->step(*backend, ForwardMode::kExtend, {1499, 0});
      model->step(*backend, ForwardMode::kDecode, {1, 0});
    } else {
      model->step(*backend, ForwardMode::kExtend, {700, 899});
      model->step(*backend, ForwardMode::kExtend, {799, 0});
      model->step(*backend, ForwardMode::kMixed, {1, 1});
    }
    const TensorView first = model->input(0).attend.out[0];
    outputs.emplace_back(first.as<float>(), first.as<float>() + first.num_elements());
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

struct Failing {
  std::unique_ptr<SmallModel> model = std::make_unique<SmallModel>(std::vector{small_layer(0)}, kGrown, 4);
  std::unique_ptr<AttentionBackend> backend = model->create("cpu");
  StepArrays step = model->prepare(ForwardMode::kExtend, {3, 2});
  Stream stream;

  std::string plan_error() {
    try {
      backend->plan(step.batch(), stream);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST(KernelBackend, RejectsAnInconsistentBatch) {
  const struct {
    void (*corrupt)(StepArrays&);
    const char* reason;
  } cases[] = {
      {[](StepArrays& step) { step.out_slots[1] = TokenSlot(3); }, "out_slot 3: expected -1, or 4 to 59"},
      {[](StepArrays& step) { step.out_slots[1] = TokenSlot(60); }, "out_slot 60: expected -1, or 4 to 59"},
      {[](StepArrays& step) { step.out_slots[1] = TokenSlot(-2); }, "out_slot -2: expected -1, or 4 to 59"},
      {[](StepArrays& step) { step.request_rows[0] = RequestRow(3); }, "request row 3: expected 0 to 2"},
      {[](StepArrays& step) { step.request_rows[0] = RequestRow(-1); }, "request row -1: expected 0 to 2"},
      {[](StepArrays& step) { step.seqlen_kv[0] = 23; }, "seqlen_kv 23: expected 0 to 22"},
      {[](StepArrays& step) { step.seqlen_kv[0] = -1; }, "seqlen_kv -1: expected 0 to 22"},
      {[](StepArrays& step) { step.cu_seqlen_q[1] = 6; },
       "cu_seqlen_q: expected rising numbers from 0 to at most 5"},
      {[](StepArrays& step) { step.cu_seqlen_q[0] = 1; },
       "cu_seqlen_q: expected rising numbers from 0 to at most 5"},
      {[](StepArrays& step) { step.cu_seqlen_q.pop_back(); },
       "batch of 2 requests: 2 rows, 2 lengths, cu_seqlen_q of 2"},
      {[](StepArrays& step) { step.out_slots.resize(44, kNoSlot); }, "batch of 44 tokens: at most 43"},
      {[](StepArrays& step) {
         step.request_rows.resize(3);
         step.seqlen_kv.resize(3);
         step.cu_seqlen_q.resize(4, 5);
       },
       "batch of 3 requests: at most 2"}};
  for (const auto& one : cases) {
    Failing failing;
    one.corrupt(failing.step);
    EXPECT_EQ(failing.plan_error(), one.reason);
  }
  EXPECT_EQ(Failing().plan_error(), "no error");
}

TEST(KernelBackend, RejectsMoreKeysThanItsLimits) {
  SmallModel model({small_layer(0)}, kGrown, 4);
  const BackendEntry& entry = *find_backend(backend_table(), "torch_native");
  BackendContext context = model.context();
  context.config.limits.max_kv_tokens = 4;
  const auto backend = entry.create(context);
  Stream stream;
  EXPECT_THROW(backend->plan(model.prepare(ForwardMode::kExtend, {3, 2}).batch(), stream), Error);
}

std::string forward_error(AttentionBackend& backend, const AttentionLayer& layer, const AttentionInput& input,
                          const ForwardBatch& batch) {
  Stream stream;
  try {
    backend.forward(layer, input, batch, stream);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(KernelBackend, RejectsCallsWithoutAPlan) {
  SmallModel model({small_layer(0)}, kGrown, 4);
  const auto backend = model.create("cpu");
  const ForwardBatch batch = model.prepare(ForwardMode::kExtend, {3, 2}).batch();
  const AttentionLayer& layer = model.layers()[0];
  EXPECT_THAT(forward_error(*backend, layer, model.input(0).attend, batch),
              HasSubstr("batch of 2 requests and 5 tokens: planned were -1 and -1"));
  EXPECT_THROW(backend->destination(layer, batch), Error);
  Stream stream;
  backend->plan(batch, stream);
  EXPECT_EQ(forward_error(*backend, layer, model.input(0).attend, batch), "no error");

  AttentionLayer windowed = layer;
  windowed.window_left = 3;
  EXPECT_THAT(forward_error(*backend, windowed, model.input(0).attend, batch),
              HasSubstr("layer 0: no layer of the model has its heads (4/2), window_left 3"));
  AttentionInput fewer = model.input(0).attend;
  fewer.q = fewer.q.slice(0, 0, 4);
  EXPECT_THAT(forward_error(*backend, layer, fewer, batch), HasSubstr("expected 5 tokens of 4 heads"));

  const ForwardBatch next = model.prepare(ForwardMode::kDecode, {1, 1}).batch();
  EXPECT_THAT(forward_error(*backend, layer, model.input(0).attend, next),
              HasSubstr("batch of 2 requests and 2 tokens: planned were 2 and 5"));
}

TEST(KernelBackend, RejectsCallsThatDoNotFitTheLayer) {
  SmallModel model({small_layer(0)}, kGrown, 4);
  const auto backend = model.create("cpu");
  const ForwardBatch batch = model.prepare(ForwardMode::kExtend, {3, 2}).batch();
  const AttentionLayer& layer = model.layers()[0];
  const AttentionInput input = model.input(0).attend;
  Stream stream;
  backend->plan(batch, stream);

  AttentionInput other = input;
  other.q = input.q.slice(2, 0, 24);
  EXPECT_THAT(forward_error(*backend, layer, other, batch), HasSubstr("expected 24 in dimension 3"));
  other = input;
  other.out = input.out.slice(0, 0, 4);
  EXPECT_THAT(forward_error(*backend, layer, other, batch), HasSubstr("expected 5 in dimension 0"));
  other = input;
  const Tensor lse = Tensor::zeros({5, 4}, DType::kF16);
  other.lse = lse;
  EXPECT_THAT(forward_error(*backend, layer, other, batch), HasSubstr("expected float32"));

  const std::vector<float> sinks(3);
  AttentionLayer odd = layer;
  odd.sinks = sinks;
  EXPECT_THAT(forward_error(*backend, odd, input, batch), HasSubstr("sinks: 3 for 4 query heads"));
  odd = layer;
  odd.head_dim_qk = 64;
  EXPECT_THAT(forward_error(*backend, odd, input, batch),
              HasSubstr("layer 0 with 2 KV heads of 64/32: the pool has 2 of 32/32"));
  EXPECT_EQ(forward_error(*backend, layer, input, batch), "no error");
}

TEST(KernelBackend, RejectsTreeMasksOfTooFewWords) {
  SmallModel model({small_layer(0)}, kGrown, 4);
  const auto backend = model.create("cpu");
  ForwardBatch batch = model.prepare(ForwardMode::kExtend, {3, 2}).batch();
  const std::vector<uint64_t> words(1);
  batch.tree_mask = words;
  Stream stream;
  try {
    backend->plan(batch, stream);
    ADD_FAILURE() << "planned";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tree_mask of 1 words: expected 5"));
  }
}

std::string create_error(const SmallModel& model, void (*corrupt)(BackendConfig&)) {
  BackendContext context = model.context();
  corrupt(context.config);
  const BackendEntry& entry = *find_backend(backend_table(), "cpu");
  try {
    entry.create(context);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(KernelBackend, RejectsPoolsThatDoNotFitTheModel) {
  const SmallModel model({small_layer(0)}, kGrown, 4);
  EXPECT_EQ(create_error(model, [](BackendConfig& config) { config.page_size = 8; }),
            "page_size 8: the pool has 4");
  EXPECT_EQ(create_error(model, [](BackendConfig& config) { config.model.kv_dtype = DType::kBF16; }),
            "kv_cache_dtype bfloat16: the pool has float32");
  EXPECT_EQ(create_error(model, [](BackendConfig& config) { config.model.max_context_len = 23; }),
            "context length 23: the request rows have 22 positions");
  EXPECT_EQ(create_error(model, [](BackendConfig& config) { config.model.layers[0].num_kv_heads = 4; }),
            "layer 0 with 4 KV heads of 32/32: the pool has 2 of 32/32");
  EXPECT_EQ(create_error(model, [](BackendConfig&) {}), "no error");
}

TEST(KernelBackend, RejectsExpandedLatentLayers) {
  MlaKvPool pool(
      {.num_layers = 1, .kv_lora_rank = 512, .rope_dim = 64, .page_size = 64, .num_pages = 2, .scales = {}});
  const ReqToTokenPool requests(1, 64);
  AttentionLayer layer{.num_q_heads = 16,
                       .num_kv_heads = 1,
                       .head_dim_qk = 576,
                       .head_dim_v = 512,
                       .rope_dim = 64,
                       .kind = KvKind::kMla};
  BackendContext context{
      .config = {.device = {},
                 .model = {.layers = {layer}, .kv_dtype = DType::kBF16, .max_context_len = 64},
                 .limits = {.max_reqs = 1, .max_tokens = 8, .max_kv_tokens = 64},
                 .page_size = 64},
      .request_table = requests.table(),
      .pool = pool};
  const BackendEntry& entry = *find_backend(backend_table(), "flashmla");
  EXPECT_NE(entry.create(context), nullptr);
  layer.num_kv_heads = 16;
  layer.head_dim_qk = 192;
  layer.head_dim_v = 128;
  context.config.model.layers.push_back(layer);
  try {
    entry.create(context);
    ADD_FAILURE() << "created";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(),
                HasSubstr("MLA layer 0 with 16 KV heads and head dims 192/128: only absorbed layers"));
  }
}

}  // namespace
}  // namespace attend::conformance
