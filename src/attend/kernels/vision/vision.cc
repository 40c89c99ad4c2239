#include "attend/kernels/vision/vision.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/vision/cuda/vision.h"

namespace attend::kernels {
namespace {

constexpr int kChannels = 3;

void require_rows(std::string_view name, const TensorView& view, int64_t num_rows, int64_t num_columns,
                  const Stream& stream) {
  require_shape(name, view, {num_rows, num_columns});
  require_activation_on(stream, name, view);
}

void require_f32_vector(std::string_view name, const TensorView& view, int64_t size, const Stream& stream) {
  require_shape(name, view, {size});
  require_dtype(name, view, DType::kF32);
  require_on(stream, name, view);
}

void check(const ImagePatchesArgs& args, const Stream& stream) {
  const int64_t size = args.patch_size;
  require(size > 0 && args.num_frames > 0, "patch_size ", size, ", num_frames ", args.num_frames,
          ": expected above 0");
  require(!args.channels_last || args.num_frames == 1, "num_frames ", args.num_frames,
          ": expected 1 with channels_last");
  require_rank("pixels", args.pixels, 3);
  require_shape("pixels", args.pixels, {args.pixels.shape[0], args.pixels.shape[1], kChannels});
  require_dtype("pixels", args.pixels, DType::kU8);
  require_on(stream, "pixels", args.pixels);
  require(args.pixels.is_contiguous(), "pixels ", args.pixels, ": expected a contiguous tensor");
  require(args.columns.size() == args.rows.size(), "columns of ", args.columns.size(), " patches: expected ",
          args.rows.size());
  require_rows("out", args.out, std::ssize(args.rows), kChannels * args.num_frames * size * size, stream);
  if (stream.device.type != DeviceType::kCpu) return;
  for (const auto& [name, places, extent] : {std::tuple("rows", args.rows, args.pixels.shape[0] / size),
                                             {"columns", args.columns, args.pixels.shape[1] / size}})
    for (const int32_t place : places)
      require(place >= 0 && place < extent, name, ": ", place, ": expected 0 to ", extent - 1, " for pixels ",
              args.pixels);
}

void write_patch(const ImagePatchesArgs& args, int64_t patch) {
  const auto index = static_cast<size_t>(patch);
  const int64_t size = args.patch_size, frame = size * size, width = args.pixels.shape[1];
  const uint8_t* const first = args.pixels.as<const uint8_t>() +
                               (args.rows[index] * size * width + args.columns[index] * size) * kChannels;
  float* to = args.out[patch].as<float>();
  if (args.channels_last) {
    // transformers multiplies by this number and does not divide.
    constexpr auto kScale = static_cast<float>(1.0 / 255.0);
    for (int64_t y = 0; y < size; ++y) {
      const uint8_t* from = first + y * width * kChannels;
      for (int64_t x = 0; x < size * kChannels; ++x)
        *to++ = 2.0f * (static_cast<float>(*from++) * kScale - 0.5f);
    }
    return;
  }
  for (size_t c = 0; c < kChannels; ++c) {
    float* const first_frame = to;
    for (int64_t y = 0; y < size; ++y) {
      const uint8_t* from = first + y * width * kChannels + c;
      for (int64_t x = 0; x < size; ++x, from += kChannels)
        *to++ = (static_cast<float>(*from) - args.mean[c]) / args.deviation[c];
    }
    for (int repeated = 1; repeated < args.num_frames; ++repeated) to = std::copy_n(first_frame, frame, to);
  }
}

}  // namespace

void image_patches(const ImagePatchesArgs& args, Stream& stream) {
  check(args, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::image_patches(args, stream);
  parallel_for_rows(args.out.shape[0], args.out.shape[1], [&](int64_t patch) { write_patch(args, patch); });
}

void add_table_rows(const AddTableRowsArgs& args, Stream& stream) {
  const TensorView &table = args.table, &out = args.out;
  require_rank("table", table, 2);
  require_weight("table", table);
  require_on(stream, "table", table);
  require_rank("out", out, 2);
  require_rows("out", out, out.shape[0], table.shape[1], stream);
  require(args.taps_per_row > 0 && std::ssize(args.taps) == out.shape[0] * args.taps_per_row,
          "taps: ", args.taps.size(), ": expected ", args.taps_per_row, " for each row of out ", out);
  if (const OnGpu gpu(stream); gpu) return cuda::add_table_rows(args, stream);
  for (const TableTap& tap : args.taps)
    require(tap.row >= 0 && tap.row < table.shape[0], "taps: row ", tap.row, ": table has ", table.shape[0],
            " rows");
  const auto count = static_cast<size_t>(args.taps_per_row);
  visit_float_dtype(table.dtype, [&]<class T>(TypeTag<T>) {
    parallel_for_rows(out.shape[0], args.taps_per_row * out.shape[1], [&](int64_t row) {
      const View<const TableTap> taps = args.taps.subspan(static_cast<size_t>(row) * count, count);
      float* const to = out[row].as<float>();
      for (int64_t feature = 0; feature < out.shape[1]; ++feature) {
        float sum = 0.0f;
        for (const TableTap& tap : taps)
          sum += tap.weight * static_cast<float>(table.as<const T>()[tap.row * table.strides[0] + feature]);
        to[feature] += sum;
      }
    });
  });
}

void join_channels(const TensorView& x, int64_t patches_per_token, const TensorView& out, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  require(patches_per_token > 0 && x.shape[1] % patches_per_token == 0, "x ", x, ": expected rows of ",
          patches_per_token, " patches");
  require_rows("out", out, x.shape[0], x.shape[1], stream);
  require_dtype("out", out, x.dtype);
  if (const OnGpu gpu(stream); gpu) return cuda::join_channels(x, patches_per_token, out, stream);
  const int64_t channels = x.shape[1] / patches_per_token;
  parallel_for_rows(x.shape[0], x.shape[1], [&](int64_t token) {
    const float* const from = x[token].as<const float>();
    float* const to = out[token].as<float>();
    for (int64_t patch = 0; patch < patches_per_token; ++patch)
      for (int64_t channel = 0; channel < channels; ++channel)
        to[channel * patches_per_token + patch] = from[patch * channels + channel];
  });
}

void average_patches(const AveragePatchesArgs& args, Stream& stream) {
  const TensorView &x = args.x, &out = args.out;
  require_rank("x", x, 2);
  require_rank("out", out, 2);
  require_activation_on(stream, "x", x);
  require_rows("out", out, x.shape[0], out.shape[1], stream);
  require_dtype("out", out, x.dtype);
  const int64_t features = out.shape[1];
  require(features > 0 && x.shape[1] > 0 && x.shape[1] % features == 0, "x ", x,
          ": expected rows of patches of ", features, " features");
  if (!args.bias.empty()) require_f32_vector("bias", args.bias, features, stream);
  if (!args.scale.empty()) require_f32_vector("scale", args.scale, features, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::average_patches(args, stream);
  const int64_t patches = x.shape[1] / features;
  const float per_patch = 1.0f / static_cast<float>(patches);
  parallel_for_rows(x.shape[0], x.shape[1], [&](int64_t token) {
    const float* const from = x[token].as<const float>();
    float* const to = out[token].as<float>();
    std::copy_n(from, features, to);
    for (int64_t patch = 1; patch < patches; ++patch)
      for (int64_t i = 0; i < features; ++i) to[i] += from[patch * features + i];
    for (int64_t i = 0; i < features; ++i) {
      to[i] = to[i] * per_patch * args.factor;
      if (!args.bias.empty()) to[i] -= args.bias.as<const float>()[i];
      if (!args.scale.empty()) to[i] *= args.scale.as<const float>()[i];
    }
  });
}

void clamp_between(const TensorView& x, const TensorView& low, const TensorView& high, const TensorView& out,
                   Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  require_rows("out", out, x.shape[0], x.shape[1], stream);
  require_dtype("out", out, x.dtype);
  require_f32_vector("low", low, 1, stream);
  require_f32_vector("high", high, 1, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::clamp_between(x, low, high, out, stream);
  const float min = *low.as<const float>(), max = *high.as<const float>();
  parallel_for_rows(x.shape[0], x.shape[1], [&](int64_t row) {
    const float* const from = x[row].as<const float>();
    float* const to = out[row].as<float>();
    for (int64_t i = 0; i < x.shape[1]; ++i) to[i] = from[i] < min ? min : from[i] > max ? max : from[i];
  });
}

}  // namespace attend::kernels
