#include "attend/model/architectures/architecture.h"
#include "attend/model/config/rank_spec.h"
#include "attend/model/decoder.h"
#include "attend/model/loadable_model.h"

namespace attend {

std::unique_ptr<LoadableModel> make_model(const ModelSpec& spec, const ModelPlacement& placement,
                                          bool own_head) {
  const ModelArchitecture& architecture = find_architecture(spec.architecture, "architecture");
  return std::make_unique<DecoderModel>(rank_spec(spec, placement.num_ranks), architecture.names, placement,
                                        own_head);
}

}  // namespace attend
