#include "protocol/http2/request_queue.h"

namespace hawser::protocol::http2 {

void RequestQueue::add(Http2Stream& stream, std::span<const Field> fields) {
  // Requests that have ended while they waited stay in the queue at most until half of it is such requests.
  constexpr std::size_t ended_least = 64;
  if (entries_.size() >= 2 * count_ + ended_least) {
    std::erase_if(entries_, [](const Entry& entry) { return !waits(entry); });
  }
  stream.waiting_fields.assign(fields.begin(), fields.end());
  entries_.push_back({&stream, stream.call});
  ++count_;
  stream.waiting = true;
}

Http2Stream& RequestQueue::front() {
  while (!waits(entries_.front())) entries_.pop_front();
  return *entries_.front().stream;
}

void RequestQueue::on_submitted(Http2Stream& stream) noexcept {
  if (std::exchange(stream.waiting, false)) --count_;
  ++submitted_;
}

void RequestQueue::on_closed(Http2Stream& stream) noexcept {
  if (std::exchange(stream.waiting, false)) {
    --count_;
  } else {
    --submitted_;
  }
}

}  // namespace hawser::protocol::http2
