// Renders templates for scripts/check_chat_templates.py: one JSON object in, one out, per line.
//   {"file": path, "variables": {...}, "add_generation_prompt": true, "now": 0}
//   {"text": "..."} or {"error": "..."}
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "attend/base/error.h"
#include "attend/text/chat_template/chat_template.h"

int main() {
  using Json = nlohmann::ordered_json;
  std::map<std::string, attend::ChatTemplate> templates;
  for (std::string line; std::getline(std::cin, line);) {
    const Json job = Json::parse(line);
    const auto file = job.at("file").get<std::string>();
    Json answer;
    try {
      auto found = templates.find(file);
      if (found == templates.end())
        found =
            templates.emplace(file, *attend::ChatTemplate::find(job.at("directory").get<std::string>(), file))
                .first;
      std::string text;
      for (const auto& part :
           found->second.render(job.at("variables").dump(), job.at("add_generation_prompt"), job.at("now")))
        text += part.text;
      answer["text"] = text;
    } catch (const attend::Error& error) {
      answer["error"] = error.what();
    }
    std::cout << answer.dump() << std::endl;
  }
}
