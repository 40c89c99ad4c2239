#include "attend/serve/protocols/responses/stored_responses.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <span>

#include "attend/serve/http/url_query.h"
#include "attend/serve/json/fields.h"
#include "attend/serve/json/json_text.h"

namespace attend::serve {
namespace {

std::shared_ptr<const StoredResponse> find(ResponseStore& store, const std::string& id) {
  auto found = store.find(id);
  if (!found) throw ApiError{404, "response " + excerpt(id) + ": not stored", "response_id", "not_found"};
  return found;
}

}  // namespace

std::string stored_response(ResponseStore& store, const std::string& id, std::string_view query) {
  for (const auto& [name, value] : parse_query(query))
    if ((name == "stream" && value != "false") || name == "starting_after")
      reject_unsupported(name, "a stored response is not streamed again");
  return find(store, id)->json;
}

std::string delete_response(ResponseStore& store, const std::string& id) {
  find(store, id);
  store.erase(id);
  JsonText json;
  json.begin_object().key("id").text(id).key("object").text("response").key("deleted").boolean(true);
  return json.end_object().take();
}

std::string input_item_list(ResponseStore& store, const std::string& id, std::string_view query) {
  size_t limit = 20;
  bool ascends = false;
  std::optional<std::string> after;
  for (const auto& [name, value] : parse_query(query)) {
    if (name == "limit") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), limit);
      if (error != std::errc() || end != value.data() + value.size() || limit < 1 || limit > 100)
        reject("limit", "limit ", excerpt(value), ": expected an integer from 1 to 100");
    } else if (name == "order") {
      if (value != "asc" && value != "desc")
        reject("order", "order ", excerpt(value), ": expected \"asc\" or \"desc\"");
      ascends = value == "asc";
    } else if (name == "after") {
      after = value;
    } else if (name == "before") {
      reject_unsupported("before", "not supported; expected after");
    }
  }
  const auto response = find(store, id);
  std::vector<std::shared_ptr<const ResponseItem>> items(
      response->items.begin(), response->items.begin() + static_cast<std::ptrdiff_t>(response->num_input));
  if (!ascends) std::ranges::reverse(items);
  auto first = items.begin();
  if (after) {
    first = std::ranges::find_if(items, [&](const auto& item) { return item->id == *after; });
    if (first == items.end()) reject("after", "after ", excerpt(*after), ": no input item has this id");
    ++first;
  }
  const std::span page(first, std::min(limit, static_cast<size_t>(items.end() - first)));
  JsonText json;
  json.begin_object().key("object").text("list").key("data").begin_array();
  for (const auto& item : page) json.raw(item->json);
  json.end_array().key("first_id").text_or_null(page.empty() ? "" : page.front()->id);
  json.key("last_id").text_or_null(page.empty() ? "" : page.back()->id);
  json.key("has_more").boolean(page.size() < static_cast<size_t>(items.end() - first));
  return json.end_object().take();
}

void cancel_response(ResponseStore& store, const std::string& id) {
  find(store, id);
  throw ApiError{400,
                 "response " + excerpt(id) +
                     ": has ended. Responses are not computed in the background; to cancel one, close its "
                     "connection",
                 "response_id", "unsupported"};
}

}  // namespace attend::serve
