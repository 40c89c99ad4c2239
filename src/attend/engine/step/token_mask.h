// TokenMask: which tokens may come next in one request. Grammars take part in sampling through it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#pragma GCC visibility push(default)
namespace attend {

// Called on the engine's thread. What throws ends the request that it belongs to, with FinishReason::kError.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  // Before each token: sets bit v % 32 of word v / 32 for every token v that may come, and clears the others;
  // `words` has as many as the vocabulary takes. False: every token may come, whatever the words.
  virtual bool fill(std::span<uint32_t> words) = 0;
  // After each token: the one that was chosen.
  virtual void accept(int32_t token_id) = 0;
  // A mask of its own for another completion of the same prompt, from the beginning.
  virtual std::shared_ptr<TokenMask> fork() const = 0;
};

}  // namespace attend
#pragma GCC visibility pop
