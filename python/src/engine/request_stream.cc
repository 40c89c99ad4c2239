#include "engine/request_stream.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "attend/base/error.h"
#include "attend/engine/request.h"

namespace attend::python {

void StoredLogprobs::add(const LogprobsView& view) {
  logprobs.insert(logprobs.end(), view.logprobs.begin(), view.logprobs.end());
  tops.insert(tops.end(), view.tops.begin(), view.tops.end());
  if (!view.empty()) num_top = view.num_top;
}

RequestStream::RequestStream(int num_completions)
    : outputs_(static_cast<size_t>(num_completions)), num_left_(num_completions) {
  for (int i = 0; i < num_completions; ++i) outputs_[static_cast<size_t>(i)].index = i;
}

RequestStream::~RequestStream() {
  if (fd_ >= 0) close(fd_);
}

void RequestStream::add(const RequestOutput& output) {
  const std::lock_guard lock(mutex_);
  NewOutput& to = outputs_[static_cast<size_t>(output.index)];
  to.any = true;
  to.token_ids.insert(to.token_ids.end(), output.token_ids.begin(), output.token_ids.end());
  to.text += output.text;
  to.finish_reason = output.finish_reason;
  to.matched_token = output.matched_token;
  to.matched_stop = output.matched_stop;
  to.message = output.message;
  to.logprobs.add(output.logprobs);
  to.prompt_logprobs.add(output.prompt_logprobs);
  to.has_prompt_logprobs = to.has_prompt_logprobs || output.has_prompt_logprobs;
  to.num_cached_tokens = output.request.num_cached_tokens;
  if (!std::exchange(prompt_told_, true))
    to.prompt_token_ids.assign(output.request.tokens.begin(),
                               output.request.tokens.begin() + output.request.num_prompt);
  if (output.finished()) --num_left_;
  news_.notify_all();
  if (fd_ >= 0) set_readable();
}

std::vector<NewOutput> RequestStream::take(std::chrono::milliseconds timeout, bool finished) {
  std::unique_lock lock(mutex_);
  if (!news_.wait_for(lock, timeout, [&] { return finished ? num_left_ == 0 : has_news(); })) return {};
  std::vector<NewOutput> news;
  for (NewOutput& output : outputs_)
    if (output.any) {
      NewOutput nothing;
      nothing.index = output.index;
      news.push_back(std::exchange(output, std::move(nothing)));
    }
  if (uint64_t count = 0; fd_ >= 0) (void)!read(fd_, &count, sizeof count);
  return news;
}

bool RequestStream::ended() const {
  const std::lock_guard lock(mutex_);
  return num_left_ == 0 && !has_news();
}

int RequestStream::fd() {
  const std::lock_guard lock(mutex_);
  if (fd_ >= 0) return fd_;
  fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd_ < 0) fail(ErrorCode::kOutOfMemory, "a request's event: ", std::strerror(errno));
  if (has_news()) set_readable();
  return fd_;
}

bool RequestStream::has_news() const {
  return std::any_of(outputs_.begin(), outputs_.end(), [](const NewOutput& output) { return output.any; });
}

void RequestStream::set_readable() {
  const uint64_t one = 1;
  (void)!write(fd_, &one, sizeof one);
}

}  // namespace attend::python
