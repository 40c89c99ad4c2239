#include "attend/model/modules/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

// theta^(-2i / d)
double plain_frequency(double theta, int rotary_dim, int i) { return std::pow(theta, -2.0 * i / rotary_dim); }

double dynamic_theta(const RopeConfig& config, int length) {
  const double original = config.original_max_position_embeddings;
  const double stretch =
      config.factor * std::max<double>(length, original) / original - (config.factor - 1.0);
  return config.theta * std::pow(stretch, config.rotary_dim / (config.rotary_dim - 2.0));
}

double llama3_frequency(const RopeConfig& config, double frequency) {
  // Rotations of the pair within the original length.
  const double turns = config.original_max_position_embeddings * frequency / (2.0 * std::numbers::pi);
  const double share = std::clamp(
      (turns - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor), 0.0, 1.0);
  return (1.0 - share) * frequency / config.factor + share * frequency;
}

// Begin and end of YaRN's ramp, in pairs of dimensions.
struct YarnRamp {
  double low, high;

  explicit YarnRamp(const RopeConfig& config) {
    low = pair_with_rotations(config, config.beta_fast);
    high = pair_with_rotations(config, config.beta_slow);
    if (config.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, config.rotary_dim - 1.0);
    if (low == high) high += 0.001;  // the paper's ramp divides by the difference; so does transformers
  }

  // Returns the weight of the interpolated frequency.
  double at(int i) const { return std::clamp((i - low) / (high - low), 0.0, 1.0); }

 private:
  // Returns the fractional index of the pair with `turns` rotations within the original length.
  static double pair_with_rotations(const RopeConfig& config, double turns) {
    const double wavelength = config.original_max_position_embeddings / turns;
    return config.rotary_dim * std::log(wavelength / (2.0 * std::numbers::pi)) /
           (2.0 * std::log(config.theta));
  }
};

// 0.1 m ln(s) + 1
double yarn_scale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// Numbers of rows in the tables.
struct Rows {
  Rows(const RopeConfig& config, int num_positions, int max_tokens) {
    const bool dynamic = config.type == RopeType::kDynamic, two_tables = config.type == RopeType::kLongRope;
    angle_rows = dynamic ? max_tokens : (two_tables ? 2 : 1) * int64_t{num_positions};
    step_rows = config.pair_axes.empty() ? 0 : max_tokens;
    token_rows = dynamic || two_tables || step_rows > 0 ? max_tokens : 0;
  }
  int64_t angle_rows, step_rows;
  int token_rows;
};

// Fills one row of the cosine and sine tables.
void fill_row(const std::vector<float>& frequencies, int position, float attention_factor, float* cos,
              float* sin) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    cos[i] = static_cast<float>(std::cos(double{angle})) * attention_factor;
    sin[i] = static_cast<float>(std::sin(double{angle})) * attention_factor;
  }
}

}  // namespace

void rope_frequencies(const RopeConfig& config, int length, View<float> frequencies) {
  ensure(std::ssize(frequencies) == config.rotary_dim / 2, "rope frequencies: ", frequencies.size(),
         " for rotary_dim ", config.rotary_dim);
  const bool dynamic = config.type == RopeType::kDynamic;
  const double theta = dynamic ? dynamic_theta(config, length) : config.theta;
  for (int i = 0; i < config.rotary_dim / 2; ++i) {
    double frequency = plain_frequency(theta, config.rotary_dim, i);
    if (config.type == RopeType::kLinear || config.type == RopeType::kProportional)
      frequency /= config.factor;
    if (config.type == RopeType::kProportional && i >= config.num_rotated_pairs) frequency = 0.0;
    if (config.type == RopeType::kLlama3) frequency = llama3_frequency(config, frequency);
    if (config.type == RopeType::kLongRope)
      frequency /=
          (length > config.original_max_position_embeddings ? config.long_factor
                                                            : config.short_factor)[static_cast<size_t>(i)];
    if (config.type == RopeType::kYarn) {
      const double share = YarnRamp(config).at(i);
      frequency = share * frequency / config.factor + (1.0 - share) * frequency;
    }
    frequencies[static_cast<size_t>(i)] = static_cast<float>(frequency);
  }
}

float rope_attention_factor(const RopeConfig& config) {
  if (config.type != RopeType::kYarn && config.type != RopeType::kLongRope) return 1.0f;
  if (config.attention_factor != 0.0) return static_cast<float>(config.attention_factor);
  if (config.type == RopeType::kLongRope)
    return static_cast<float>(std::sqrt(1.0 + std::log(std::max(config.factor, 1.0)) /
                                                  std::log(config.original_max_position_embeddings)));
  if (config.mscale != 0.0 && config.mscale_all_dim != 0.0)
    return static_cast<float>(yarn_scale(config.factor, config.mscale) /
                              yarn_scale(config.factor, config.mscale_all_dim));
  return static_cast<float>(yarn_scale(config.factor, 1.0));
}

RopeTable::RopeTable(const RopeConfig& config, int num_positions, int max_tokens, Device device)
    : config_(config),
      attention_factor_(rope_attention_factor(config)),
      frequencies_(static_cast<size_t>(config.rotary_dim / 2)) {
  const Rows rows(config, num_positions, max_tokens);
  cos_ = Tensor::empty({rows.angle_rows, config.rotary_dim / 2}, DType::kF32);
  sin_ = Tensor::empty({rows.angle_rows, config.rotary_dim / 2}, DType::kF32);
  token_row_ = Tensor::empty({rows.token_rows}, DType::kI32);
  const View<int32_t> token_row = token_row_.span<int32_t>();
  std::iota(token_row.begin(), token_row.end(), 0);
  const auto fill = [&](int64_t first_row, int length) {
    rope_frequencies(config_, length, frequencies_);
    parallel_for_rows(num_positions, config.rotary_dim, [&](int64_t position) {
      fill_row(frequencies_, static_cast<int>(position), attention_factor_,
               cos_.view()[first_row + position].as<float>(), sin_.view()[first_row + position].as<float>());
    });
  };
  if (config.type != RopeType::kDynamic) fill(0, 0);
  if (config.type == RopeType::kLongRope) fill(num_positions, config.original_max_position_embeddings + 1);
  step_cos_ = Tensor::empty({rows.step_rows, config.rotary_dim / 2}, DType::kF32, device);
  step_sin_ = Tensor::empty({rows.step_rows, config.rotary_dim / 2}, DType::kF32, device);
  if (device.type == DeviceType::kCpu) return;
  if (rows.token_rows > 0) token_row_ = cuda::copy_to(token_row_, device);
  cos_ = cuda::copy_to(cos_, device);
  sin_ = cuda::copy_to(sin_, device);
}

double RopeTable::num_bytes(const RopeConfig& config, int num_positions, int max_tokens) {
  const Rows rows(config, num_positions, max_tokens);
  return 1.0 * static_cast<double>(rows.angle_rows + rows.step_rows) * config.rotary_dim * sizeof(float) +
         1.0 * rows.token_rows * sizeof(int32_t);
}

RopeRows RopeTable::rows(const ForwardBatch& batch, View<const int32_t> prompt_lens, Stream& stream,
                         View<const int32_t> axes) {
  if (!axes.empty() && !config_.pair_axes.empty()) return rows_by_axes(axes, stream);
  if (config_.type == RopeType::kDynamic) return rows_by_length(batch, prompt_lens, stream);
  if (!on_gpu()) check_positions(batch.positions);
  if (config_.type == RopeType::kLongRope) return rows_from_two_tables(batch, prompt_lens, stream);
  return {.cos = cos_, .sin = sin_, .positions = batch.positions, .interleaved = config_.interleaved};
}

RopeRows RopeTable::rows_by_axes(View<const int32_t> axes, Stream& stream) {
  const size_t num_tokens = axes.size() / 3;
  ensure(config_.type == RopeType::kDefault, "positions with three axes and rope scaling");
  require(axes.size() == 3 * num_tokens && std::ssize(axes) <= 3 * token_row_.shape(0),
          "positions with three axes: ", axes.size(), " for at most ", token_row_.shape(0), " tokens");
  const auto count = static_cast<int64_t>(num_tokens);
  const TensorView cos = step_cos_.view().slice(0, 0, count), sin = step_sin_.view().slice(0, 0, count);
  kernels::axis_angles({.positions = axes,
                        .pair_axes = config_.pair_axes,
                        .table_cos = cos_,
                        .table_sin = sin_,
                        .cos = cos,
                        .sin = sin},
                       stream);
  return {.cos = cos,
          .sin = sin,
          .positions = token_row_.span<int32_t>().first(num_tokens),
          .interleaved = config_.interleaved};
}

void RopeTable::check_positions(View<const int32_t> positions) const {
  for (const int32_t position : positions)
    require(position >= 0 && position < num_positions(), "position ", position, ": expected 0 to ",
            num_positions() - 1);
}

View<int32_t> RopeTable::token_rows(const ForwardBatch& batch, View<const int32_t> prompt_lens) {
  require(prompt_lens.size() == static_cast<size_t>(batch.num_reqs), "prompt_lens of ", prompt_lens.size(),
          " requests: rope types dynamic and longrope require one entry for each of ", batch.num_reqs);
  require(batch.num_tokens <= token_row_.shape(0), "num_tokens ", batch.num_tokens,
          ": the rope table supports at most ", token_row_.shape(0));
  return token_row_.span<int32_t>().first(static_cast<size_t>(batch.num_tokens));
}

RopeRows RopeTable::rows_from_two_tables(const ForwardBatch& batch, View<const int32_t> prompt_lens,
                                         Stream& stream) {
  const View<int32_t> rows = token_rows(batch, prompt_lens);
  kernels::rope_rows_by_length({.positions = batch.positions,
                                .cu_seqlen_q = batch.cu_seqlen_q,
                                .prompt_lens = prompt_lens,
                                .original_length = config_.original_max_position_embeddings,
                                .num_positions = static_cast<int32_t>(num_positions()),
                                .rows = rows},
                               stream);
  return {.cos = cos_, .sin = sin_, .positions = rows, .interleaved = config_.interleaved};
}

RopeRows RopeTable::rows_by_length(const ForwardBatch& batch, View<const int32_t> prompt_lens,
                                   Stream& stream) {
  const View<int32_t> token_row = token_rows(batch, prompt_lens);
  const int64_t num_tokens = batch.num_tokens;
  const RopeRows rows{.cos = cos_.view().slice(0, 0, num_tokens),
                      .sin = sin_.view().slice(0, 0, num_tokens),
                      .positions = token_row,
                      .interleaved = config_.interleaved};
  if (on_gpu())
    kernels::dynamic_angles({.positions = batch.positions,
                             .cu_seqlen_q = batch.cu_seqlen_q,
                             .prompt_lens = prompt_lens,
                             .theta = config_.theta,
                             .factor = config_.factor,
                             .original_length = config_.original_max_position_embeddings,
                             .cos = rows.cos,
                             .sin = rows.sin},
                            stream);
  else
    fill_by_length(batch, prompt_lens);
  return rows;
}

void RopeTable::fill_by_length(const ForwardBatch& batch, View<const int32_t> prompt_lens) {
  int frequencies_length = -1;
  for (size_t r = 0; r < prompt_lens.size(); ++r)
    for (int token = batch.cu_seqlen_q[r]; token < batch.cu_seqlen_q[r + 1]; ++token) {
      const int position = batch.positions[static_cast<size_t>(token)];
      // All lengths up to the original one have the same frequencies.
      const int length = std::max({prompt_lens[r], position + 1, config_.original_max_position_embeddings});
      if (length != frequencies_length) rope_frequencies(config_, length, frequencies_);
      frequencies_length = length;
      fill_row(frequencies_, position, attention_factor_, cos_.view()[token].as<float>(),
               sin_.view()[token].as<float>());
    }
  // Padding tokens are not rotated; their output is not used.
  for (int64_t token = batch.cu_seqlen_q[prompt_lens.size()]; token < batch.num_tokens; ++token) {
    std::fill_n(cos_.view()[token].as<float>(), config_.rotary_dim / 2, 1.0f);
    std::fill_n(sin_.view()[token].as<float>(), config_.rotary_dim / 2, 0.0f);
  }
}

}  // namespace attend
