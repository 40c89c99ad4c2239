// Times vision towers on the GPU with random bf16 weights: an image of about a megapixel through all parts of
// its encoding, compared with the products of the same tower without biases, norms and attention. Prints
// milliseconds, TFLOP/s of both, and their ratio.
//
//   cuda_vision_bench [SIDE_IN_PIXELS]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "attend/bench/timing.h"
#include "attend/exec/image_encoder.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/model/load_vision_tower.h"
#include "attend/model/multimodal/vision_encoding.h"
#include "benchmarks/cuda/counts.h"

namespace attend::bench {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr int kRepeats = 10;

struct TowerShape {
  const char* name;
  int num_layers, hidden_size, intermediate_size, out_size;
  std::vector<int> deepstack_layers;
};

ModelSpec make_spec(const TowerShape& shape) {
  ModelSpec spec;
  spec.architecture = "Qwen3VLForConditionalGeneration";
  spec.dtype = DType::kBF16;
  spec.vision = VisionSpec{.processor = {.patch_size = 16,
                                         .min_pixels = 65536,
                                         .max_pixels = 16777216,
                                         .mean = {0.5f, 0.5f, 0.5f},
                                         .std = {0.5f, 0.5f, 0.5f}},
                           .num_layers = shape.num_layers,
                           .hidden_size = shape.hidden_size,
                           .num_heads = 16,
                           .intermediate_size = shape.intermediate_size,
                           .out_size = shape.out_size,
                           .patch_bias = true,
                           .position_side = 48,
                           .deepstack_layers = shape.deepstack_layers};
  return spec;
}

std::shared_ptr<const ImageItem> make_image(int width, int height, const ImageProcessorSpec& spec) {
  Image image{.width = width, .height = height};
  image.pixels.resize(static_cast<size_t>(image.num_pixels() * Image::kChannels));
  for (size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  return prepare_image(image, spec);
}

// Returns the median milliseconds of work that `queue` adds to the stream.
template <class Queue>
double time_ms(Stream& stream, const Queue& queue) {
  std::vector<double> times;
  for (int i = 0; i < kRepeats + 2; ++i) {
    cuda::synchronize(stream);
    const double seconds = measure_seconds([&] {
      queue();
      cuda::synchronize(stream);
    });
    if (i >= 2) times.push_back(1e3 * seconds);
  }
  return median(std::move(times));
}

// The products of all layers, and their floating-point operations.
class Products {
 public:
  Products(const VisionTower& tower, int64_t num_rows) {
    const VisionSpec& spec = tower.spec();
    for (const VisionLayer& layer : tower.weights().layers)
      for (const std::vector<Linear>* linear : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down})
        weights_.push_back(linear->front().weight);
    x_ = cuda::zeros({num_rows, spec.intermediate_size}, DType::kBF16, kGpu);
    out_ =
        cuda::zeros({num_rows, std::max(3 * spec.hidden_size, spec.intermediate_size)}, DType::kBF16, kGpu);
    for (const Weight& weight : weights_)
      flops_ += 2.0 * static_cast<double>(num_rows * weight.in_features() * weight.out_features());
  }
  void queue(Stream& stream) const {
    for (const Weight& weight : weights_) {
      const int64_t rows = x_.shape(0), in = weight.in_features(), out = weight.out_features();
      kernels::linear(
          {.x = x_.view().reshape({rows * x_.shape(1)}).slice(0, 0, rows * in).reshape({rows, in}),
           .weight = weight,
           .bias = {},
           .out = out_.view().reshape({rows * out_.shape(1)}).slice(0, 0, rows * out).reshape({rows, out})},
          stream);
    }
  }
  double flops() const { return flops_; }

 private:
  std::vector<Weight> weights_;
  Tensor x_, out_;
  double flops_ = 0.0;
};

// Returns the milliseconds of the attention of all layers.
double time_attention(const VisionSpec& spec, int num_patches, Stream& stream) {
  const auto upload = [](std::vector<int32_t> values) {
    return cuda::copy_to(Tensor::from<int32_t>(values, {static_cast<int64_t>(values.size())}), kGpu);
  };
  const Tensor cu_seqlens = upload({0, num_patches}), lengths = upload({num_patches});
  const int64_t hidden = spec.hidden_size, head_dim = spec.head_dim();
  const Tensor qkv = cuda::empty({num_patches, 3 * hidden}, DType::kBF16, kGpu),
               out = cuda::empty({num_patches, hidden}, DType::kBF16, kGpu);
  kernels::fill_random(qkv, {}, stream);
  const auto heads = [&](int64_t part) {
    return qkv.view().slice(1, part * hidden, (part + 1) * hidden).split(1, head_dim);
  };
  const kernels::QueryBatch batch{.cu_seqlen_q = cu_seqlens.span<const int32_t>(),
                                  .seqlen_kv = lengths.span<const int32_t>(),
                                  .max_seqlen_q = num_patches,
                                  .num_tokens = num_patches,
                                  .max_seqlen_kv = num_patches};
  kernels::AttentionPlan plan({.max_reqs = 1,
                               .max_tokens = num_patches,
                               .max_kv_tokens = num_patches,
                               .num_q_heads = spec.num_heads,
                               .num_kv_heads = spec.num_heads,
                               .head_dim_v = spec.head_dim(),
                               .split_rule = kernels::SplitRule::kNone},
                              kGpu);
  const kernels::AttentionArgs args{
      .q = heads(0),
      .out = out.view().split(1, head_dim),
      .lse = {},
      .kv = {.k = heads(1).split(0, 1),
             .v = heads(2).split(0, 1),
             .index = {.kind = kernels::KvIndexKind::kContiguous, .indptr = batch.cu_seqlen_q.data()}},
      .batch = batch,
      .attention_mask = {.causal = false},
      .score = {.scale = 1.0f / std::sqrt(static_cast<float>(head_dim))}};
  plan.plan(batch, args.attention_mask, stream);
  return time_ms(stream, [&] {
    for (int layer = 0; layer < spec.num_layers; ++layer) kernels::attention(args, plan, stream);
  });
}

void run(const TowerShape& shape, int side, Stream& stream) {
  const ModelSpec spec = make_spec(shape);
  const auto tower = load_vision_tower(nullptr, spec, {kGpu, DType::kBF16});
  const auto image = make_image(side, side, spec.vision->processor);
  double flops = 0.0;
  VisionEncoding counted(*tower, image, stream);
  do flops += counted.part_flops();
  while (counted.advance(stream));
  const double whole_ms = time_ms(stream, [&] { tower->encode(image, stream); });
  std::vector<std::unique_ptr<VisionEncoding>> encodings;
  for (int i = 0; i < kRepeats + 2; ++i)
    encodings.push_back(std::make_unique<VisionEncoding>(*tower, image, stream));
  size_t next = 0;
  const double parts_ms = time_ms(stream, [&] {
    VisionEncoding& encoding = *encodings[next++];
    while (encoding.advance(stream)) {
    }
  });
  const Products products(*tower, image->num_tokens() * int64_t{4});
  const double products_ms = time_ms(stream, [&] { products.queue(stream); });
  const double attention_ms = time_attention(*spec.vision, image->num_tokens() * 4, stream);
  const double rate = flops / parts_ms / 1e9, products_rate = products.flops() / products_ms / 1e9;
  std::printf(
      "%-14s %d x %d, %d tokens: %.2f ms (with memory and copies %.2f), %.0f TFLOP/s; products %.2f ms, "
      "%.0f TFLOP/s; attention %.2f ms; ratio %.0f %%\n",
      shape.name, image->pixels.width, image->pixels.height, image->num_tokens(), parts_ms, whole_ms, rate,
      products_ms, products_rate, attention_ms, 100.0 * rate / products_rate);
  std::fflush(stdout);
}

// Prints the time that an engine's steps are longer by while an image of 1920 x 1080 pixels is encoded: that
// of each call of the encoder, the first of which allocates and copies.
void run_between_steps(const TowerShape& shape, Stream& stream) {
  const ModelSpec spec = make_spec(shape);
  ImageEncoder encoder(load_vision_tower(nullptr, spec, {kGpu, DType::kBF16}), /*max_bytes=*/0);
  const auto image = make_image(1920, 1080, spec.vision->processor);
  std::vector<double> times;
  for (int repeat = 0; repeat < 3; ++repeat) {
    times.clear();
    bool is_complete = false;
    while (!is_complete)
      times.push_back(1e3 * measure_seconds([&] {
                        is_complete = encoder.advance(image, stream).has_value();
                        cuda::synchronize(stream);
                      }));
  }
  std::printf("%-14s %d x %d between steps: %zu calls, the first %.1f ms, the longest %.1f ms\n", shape.name,
              image->pixels.width, image->pixels.height, times.size(), times.front(),
              *std::max_element(times.begin(), times.end()));
  std::fflush(stdout);
}

}  // namespace
}  // namespace attend::bench

int main(int argc, char** argv) {
  using namespace attend;
  cuda::OwnedStream stream(bench::kGpu);
  const std::vector<bench::TowerShape> shapes{{"Qwen3-VL-2B", 24, 1024, 4096, 2048, {5, 11, 17}},
                                              {"Qwen3-VL-8B", 27, 1152, 4304, 4096, {8, 16, 24}}};
  for (const int64_t side : bench::parse_counts(argc, argv, {1024}))
    for (const bench::TowerShape& shape : shapes) bench::run(shape, static_cast<int>(side), stream.get());
  bench::run_between_steps(shapes.back(), stream.get());
}
