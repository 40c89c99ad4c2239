// ImageSteps: encodes the images of running requests between steps.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "attend/engine/request.h"
#include "attend/exec/image_encoder.h"

namespace attend {

// A step of the engine is preceded by one part of an image, so requests without images continue while an
// image is encoded. An image that no running request needs any more is dropped.
class ImageSteps {
 public:
  // Both must outlive this object.
  ImageSteps(ImageEncoder& encoder, Stream& stream) : encoder_(encoder), stream_(stream) {}

  struct Failure {
    Request* request = nullptr;
    std::string message;
  };
  // Passes the rows of encoded images to the requests, releases those of computed tokens, and computes the
  // next part of the first image that is missing, in the order of the requests. Returns the request of an
  // image that cannot be encoded.
  std::optional<Failure> advance(std::span<const std::unique_ptr<Request>> running);

 private:
  ImageEncoder& encoder_;
  Stream& stream_;
};

}  // namespace attend
