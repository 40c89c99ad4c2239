#include "attend/serve/protocols/fields/image_fields.h"

#include <string_view>

#include "attend/serve/json/base64.h"

namespace attend::serve {

std::string read_base64_image(const std::string& param, const std::string& data) {
  auto bytes = decode_base64(data);
  if (!bytes || bytes->empty()) reject(param, param, " ", excerpt(data), ": expected an image in base64");
  return std::move(*bytes);
}

std::string read_image_url(const std::string& param, const std::string& url) {
  constexpr std::string_view kScheme = "data:", kEncoding = ";base64,";
  if (url.starts_with("http://") || url.starts_with("https://"))
    reject_unsupported(param, excerpt(url),
                       " is not fetched; expected a URL that contains the image, "
                       "\"data:image/jpeg;base64,...\"");
  const size_t comma = url.find(',');
  if (!url.starts_with(kScheme) || comma == std::string::npos ||
      !std::string_view(url).substr(0, comma + 1).ends_with(kEncoding))
    reject(param, param, " ", excerpt(url), ": expected \"data:image/jpeg;base64,...\"");
  return read_base64_image(param, url.substr(comma + 1));
}

Json image_part() { return {{"type", "image"}}; }

std::string read_image_part(const Json& part, const std::string& where) {
  const Fields fields(part, where + ".");
  const std::string param = fields.name("image_url");
  const Json* image = fields.find("image_url");
  if (image && image->is_string()) return read_image_url(param, image->get<std::string>());
  if (!image) reject(param, param, ": missing; expected an object with \"url\"");
  const Fields inner(*image, param + ".");
  // One size per image: the processor chooses it.
  inner.string("detail");
  const auto url = inner.string("url");
  if (!url) reject(inner.name("url"), inner.name("url"), ": missing; expected a string");
  return read_image_url(inner.name("url"), *url);
}

std::vector<std::string> take_images(Json& messages) {
  std::vector<std::string> images;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto content = messages[i].find("content");
    if (content == messages[i].end() || !content->is_array()) continue;
    for (size_t j = 0; j < content->size(); ++j) {
      Json& part = (*content)[j];
      if (!has_type(part, "image_url")) continue;
      images.push_back(
          read_image_part(part, "messages[" + std::to_string(i) + "].content[" + std::to_string(j) + "]"));
      part = image_part();
    }
  }
  return images;
}

}  // namespace attend::serve
