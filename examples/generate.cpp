// Minimal use of a model: load it, submit prompts, step until all are complete.
//   generate <model directory> <prompt> [<prompt> ...]
#include <attend/engine/engine.h>

#include <iostream>
#include <map>
#include <string>

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: generate <model directory> <prompt> [<prompt> ...]\n";
    return 2;
  }
  attend::EngineConfig config;
  config.model_path = argv[1];
  attend::Engine engine(config);
  const attend::ExecutorInfo& info = engine.info().target();
  std::cerr << info.model << ", attention backend " << info.resolution.why << "\n";

  // All prompts run concurrently: each step computes one token per prompt, or a chunk of a prompt.
  std::map<attend::RequestId, std::string> texts;
  for (int i = 2; i < argc; ++i)
    texts[engine.submit(std::string_view(argv[i]), {.max_new_tokens = 64})] = argv[i];
  while (engine.step([&](const attend::RequestOutput& output) { texts.at(output.id) += output.text; })) {
  }
  for (const auto& [id, text] : texts) std::cout << text << "\n";
  return 0;
} catch (const attend::Error& error) {
  std::cerr << "generate: " << error.what() << "\n";
  return 2;
}
