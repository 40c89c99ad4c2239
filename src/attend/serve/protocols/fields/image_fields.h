// Images in messages, and their form in the variables of chat templates.
#pragma once

#include <string>
#include <vector>

#include "attend/serve/json/fields.h"

namespace attend::serve {

// Returns the bytes of an image that a URL contains: "data:image/TYPE;base64,DATA". Rejects other URLs:
// nothing is fetched. `param`: name of the field.
std::string read_image_url(const std::string& param, const std::string& url);
// Returns the bytes of base64 text.
std::string read_base64_image(const std::string& param, const std::string& data);

// Content part with which chat templates write the placeholder of an image.
Json image_part();

// Checks a part {"type": "image_url", "image_url": {"url", "detail"}} and returns the image. A string is the
// URL itself.
std::string read_image_part(const Json& part, const std::string& where);

// Replaces the image parts of all messages by image_part(), and returns the images in their order. Messages
// have been checked.
std::vector<std::string> take_images(Json& messages);

}  // namespace attend::serve
