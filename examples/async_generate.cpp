// A model on its own thread: callers on any thread submit prompts and receive every token.
//   async_generate <model directory> <prompt> [<prompt> ...]
#include <attend/engine/async_engine.h>

#include <future>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace {

// Submits a prompt and waits for its text. May be called by several threads concurrently.
std::string complete(attend::AsyncEngine& engine, const std::string& prompt) {
  std::promise<std::string> done;
  std::string text;
  engine.submit({.prompt = prompt, .params = {.max_new_tokens = 64}},
                [&](const attend::RequestOutput& output) {  // on the engine's thread: must not block
                  text += output.text;
                  if (output.finish_reason == attend::FinishReason::kError)
                    text += "(" + std::string(output.message) + ")";
                  if (output.finished()) done.set_value(text);
                });
  return done.get_future().get();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: async_generate <model directory> <prompt> [<prompt> ...]\n";
    return 2;
  }
  attend::EngineConfig config;
  config.model_path = argv[1];
  attend::AsyncEngine engine(config);

  // One thread per caller; the engine batches their requests.
  const std::vector<std::string> prompts(argv + 2, argv + argc);
  std::vector<std::string> texts(prompts.size());
  std::vector<std::thread> callers;
  for (size_t i = 0; i < prompts.size(); ++i)
    callers.emplace_back([&, i] { texts[i] = complete(engine, prompts[i]); });
  for (std::thread& caller : callers) caller.join();
  for (const std::string& text : texts) std::cout << text << "\n";

  const attend::EngineMetrics metrics = engine.metrics();
  std::cerr << metrics.num_generated_tokens << " tokens in " << metrics.num_steps << " steps\n";
  return 0;
} catch (const attend::Error& error) {
  std::cerr << "async_generate: " << error.what() << "\n";
  return 2;
}
