#include <algorithm>
#include <cmath>
#include <vector>

#include "attend/kernels/recurrent/recurrent.h"

namespace attend::kernels::reference {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Calls step(request, token) for each token of each request that is no padding, in order, and begin(request,
// slot) before and end(request) after its tokens. The slot is -1 if the request starts from zero.
template <class Begin, class Step, class End>
void for_each_token(const RecurrentBatch& batch, const Begin& begin, const Step& step, const End& end) {
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    if (batch.rows[r] == 0 || batch.cu_seqlen_q[r + 1] == batch.cu_seqlen_q[r]) continue;
    const bool from_zero = batch.seqlen_kv[r] == batch.cu_seqlen_q[r + 1] - batch.cu_seqlen_q[r];
    const int32_t other = batch.load_slots.empty() ? 0 : batch.load_slots[r];
    begin(from_zero ? -1 : other == 0 ? batch.rows[r] : other);
    for (int64_t token = batch.cu_seqlen_q[r]; token < batch.cu_seqlen_q[r + 1]; ++token) step(token);
    end(batch.rows[r]);
  }
}

int32_t save_slot(const RecurrentBatch& batch, int64_t token) {
  return batch.save_slots.empty() ? 0 : batch.save_slots[static_cast<size_t>(token)];
}

// Calls step(head, state, token) for each token of each head. It updates the state, [rows * columns] of
// `states` [slots, heads, rows, columns], and writes the token's output. `out`: [tokens, heads, rows].
template <class Step>
void for_each_head(const RecurrentBatch& batch, const TensorView& states, const TensorView& out,
                   const Step& step) {
  for (int64_t head = 0; head < out.shape[1]; ++head) {
    for (int64_t token = 0; token < out.shape[0]; ++token)
      for (int64_t i = 0; i < out.shape[2]; ++i) out[token][head].as<float>()[i] = 0.0f;
    std::vector<double> state(static_cast<size_t>(states.shape[2] * states.shape[3]));
    const auto write = [&](int64_t slot) {
      float* const to = states[slot][head].as<float>();
      for (size_t i = 0; i < state.size(); ++i) to[i] = static_cast<float>(state[i]);
    };
    for_each_token(
        batch,
        [&](int64_t slot) {
          for (size_t i = 0; i < state.size(); ++i)
            state[i] = slot < 0 ? 0.0 : double{states[slot][head].as<const float>()[i]};
        },
        [&](int64_t token) {
          step(head, state, token);
          if (const int32_t slot = save_slot(batch, token); slot != 0) write(slot);
        },
        write);
  }
}

}  // namespace

void causal_conv(const CausalConvArgs& args) {
  const int64_t taps = args.weight.shape[1];
  int64_t channel = 0;
  for (const TensorView& input : args.inputs)
    for (int64_t group = 0; group < input.shape[1]; ++group)
      for (int64_t i = 0; i < input.shape[2]; ++i, ++channel) {
        for (int64_t token = 0; token < args.out.shape[0]; ++token)
          args.out[token].as<float>()[channel] = 0.0f;
        std::vector<float> window(static_cast<size_t>(taps));
        const auto write = [&](int64_t slot) {
          for (int64_t j = 0; j + 1 < taps; ++j)
            args.state[slot][j].as<float>()[channel] = window[static_cast<size_t>(j) + 1];
        };
        for_each_token(
            args.batch,
            [&](int64_t slot) {
              for (int64_t j = 0; j + 1 < taps; ++j)
                window[static_cast<size_t>(j) + 1] =
                    slot < 0 ? 0.0f : args.state[slot][j].as<const float>()[channel];
            },
            [&](int64_t token) {
              window.erase(window.begin());
              window.push_back(input[token][group].as<const float>()[i]);
              double sum = args.bias.empty() ? 0.0 : double{args.bias.as<const float>()[channel]};
              for (int64_t j = 0; j < taps; ++j)
                sum += double{args.weight[channel].as<const float>()[j]} *
                       double{window[static_cast<size_t>(j)]};
              args.out[token].as<float>()[channel] = static_cast<float>(args.silu ? sum * sigmoid(sum) : sum);
              if (const int32_t slot = save_slot(args.batch, token); slot != 0) write(slot);
            },
            write);
      }
}

void gated_delta_rule(const GatedDeltaArgs& args) {
  const int64_t dim_k = args.k.shape[2], dim_v = args.v.shape[2], ratio = args.v.shape[1] / args.k.shape[1];
  const auto normalized = [&](const float* x, double scale) {
    double squares = 0.0;
    for (int64_t i = 0; i < dim_k; ++i) squares += double{x[i]} * double{x[i]};
    std::vector<double> result;
    for (int64_t i = 0; i < dim_k; ++i) result.push_back(double{x[i]} * scale / std::sqrt(squares + 1e-6));
    return result;
  };
  for_each_head(
      args.batch, args.state, args.out, [&](int64_t head, std::vector<double>& state, int64_t token) {
        const int64_t key_head = head / ratio;
        const auto gate = [&](const TensorView& view) {
          return double{view[token][key_head].as<const float>()[head % ratio]};
        };
        const double rate = std::exp(double{args.a_log.as<const float>()[head]});
        const auto decay_of = [&](double x) {
          if (args.lower_bound < 0.0f) return std::exp(double{args.lower_bound} * sigmoid(rate * x));
          return std::exp(-rate * (x > 20.0 ? x : std::log1p(std::exp(x))));
        };
        std::vector<double> decay;  // per channel of k
        for (int64_t i = 0; i < dim_k; ++i)
          decay.push_back(args.decays_per_channel()
                              ? decay_of(double{args.alpha[token][head].as<const float>()[i]} +
                                         double{args.dt_bias[head].as<const float>()[i]})
                              : decay_of(gate(args.alpha) + double{args.dt_bias.as<const float>()[head]}));
        const double beta = double{args.beta_scale} * sigmoid(gate(args.beta));
        const auto q = normalized(args.q[token][key_head].as<const float>(),
                                  1.0 / std::sqrt(static_cast<double>(dim_k)));
        const auto k = normalized(args.k[token][key_head].as<const float>(), 1.0);
        for (int64_t row = 0; row < dim_v; ++row) {
          double* const s = state.data() + row * dim_k;
          double recalled = 0.0, out = 0.0;
          for (size_t i = 0; i < k.size(); ++i) recalled += (s[i] *= decay[i]) * k[i];
          const double delta = beta * (double{args.v[token][head].as<const float>()[row]} - recalled);
          for (size_t i = 0; i < k.size(); ++i) out += (s[i] += delta * k[i]) * q[i];
          args.out[token][head].as<float>()[row] = static_cast<float>(out);
        }
      });
}

void selective_scan(const SelectiveScanArgs& args) {
  const int64_t head_dim = args.x.shape[2], state_dim = args.b.shape[2];
  const int64_t ratio = args.x.shape[1] / args.b.shape[1];
  for_each_head(
      args.batch, args.state, args.out, [&](int64_t head, std::vector<double>& state, int64_t token) {
        const double raw =
            double{args.dt[token].as<const float>()[head]} + double{args.dt_bias.as<const float>()[head]};
        const double step = std::clamp(raw > 20.0 ? raw : std::log1p(std::exp(raw)), double{args.min_step},
                                       double{args.max_step});
        const double decay = std::exp(-std::exp(double{args.a_log.as<const float>()[head]}) * step);
        const float* const b = args.b[token][head / ratio].as<const float>();
        const float* const c = args.c[token][head / ratio].as<const float>();
        for (int64_t row = 0; row < head_dim; ++row) {
          double* const h = state.data() + row * state_dim;
          const double x = double{args.x[token][head].as<const float>()[row]};
          double out = double{args.d.as<const float>()[head]} * x;
          for (int64_t i = 0; i < state_dim; ++i)
            out += (h[i] = decay * h[i] + step * x * double{b[i]}) * double{c[i]};
          args.out[token][head].as<float>()[row] = static_cast<float>(out);
        }
      });
}

}  // namespace attend::kernels::reference
