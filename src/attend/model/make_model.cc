#include "attend/model/architectures/architecture.h"
#include "attend/model/decoder.h"
#include "attend/model/loadable_model.h"

namespace attend {
namespace {

// Refuses what only a CPU has kernels for, which the spec alone tells.
void check_device(const ModelSpec& spec, Device device) {
  if (device.type == DeviceType::kCpu) return;
  const auto refuse = [&](std::string_view what) {
    fail(ErrorCode::kUnsupported, spec.architecture, " on ", device, ": attend has ", what,
         " on CPUs only: --device cpu");
  };
  if (spec.learned_positions) refuse("learned positions");
  for (const LayerSpec& layer : spec.layers) {
    if (layer.norms.of_stream) refuse("layers with LayerNorm");
    if (std::holds_alternative<PlainMlpSpec>(layer.mlp)) refuse("MLPs without a gate");
  }
}

}  // namespace

std::unique_ptr<LoadableModel> make_model(const ModelSpec& spec, const ModelPlacement& placement,
                                          bool own_head) {
  check_device(spec, placement.device);
  const ModelArchitecture& architecture = find_architecture(spec.architecture, "architecture");
  return std::make_unique<DecoderModel>(spec, architecture.names, placement, own_head);
}

}  // namespace attend
