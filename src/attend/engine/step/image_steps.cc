#include "attend/engine/step/image_steps.h"

#include <exception>

namespace attend {

std::optional<ImageSteps::Failure> ImageSteps::advance(std::span<const std::unique_ptr<Request>> running) {
  Request* waiting = nullptr;
  size_t missing = 0;  // index of the image
  for (const auto& request : running) {
    if (!request->images) continue;
    const PromptImages& images = *request->images;
    request->encoded.resize(images.images.size());
    for (const ImageRun& run : images.runs) {
      Tensor& rows = request->encoded[run.image];
      if (run.end_token() <= request->num_computed) {
        const bool is_last = &run == &images.runs.back() || (&run + 1)->image != run.image;
        if (is_last) rows = Tensor();
        continue;
      }
      if (!rows.view().empty()) continue;
      if (const auto kept = encoder_.find(images.images[run.image]->hash)) {
        rows = *kept;
      } else if (waiting == nullptr) {
        waiting = request.get();
        missing = run.image;
      }
    }
  }
  if (waiting == nullptr) {
    encoder_.cancel();
    return std::nullopt;
  }
  try {
    if (const auto rows = encoder_.advance(waiting->images->images[missing], stream_))
      waiting->encoded[missing] = *rows;
  } catch (const std::exception& error) {
    return Failure{waiting, error.what()};
  }
  return std::nullopt;
}

}  // namespace attend
