#include "cli/record/replay_stream.h"

#include <chrono>
#include <utility>

#include "hawser/crc32c.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/sync.h"

namespace hawser::cli {
namespace {

using observe::StreamEvent;
using observe::StreamEvents;

Task<void> send_items(RawCall& call, const observe::RecordedCall& recorded, double speed, Time begin, bool& all_sent) {
  Loop& loop = *Loop::current();
  bool ended = false;
  StreamEvents events(recorded.events);
  while (const std::optional<StreamEvent> event = events.next()) {
    if (event->kind == StreamEvent::Kind::handler_item) continue;
    const auto since = std::chrono::duration<double>(event->at) / speed;
    const Time at = begin + std::chrono::duration_cast<Duration>(since);
    if (at > loop.now()) {
      co_await loop.sleep_until(at);
    }
    if (event->kind == StreamEvent::Kind::caller_end) {
      call.end_writing();
      ended = true;
      continue;
    }
    const Result<void> written = co_await call.write(event->body, event->payload);
    if (!written) co_return;  // The answer says why.
  }
  all_sent = true;
  if (recorded.truncated && !ended) call.end_writing();
}

Task<void> send_all(RawCall& call, const observe::RecordedCall& recorded, double speed, Time begin, bool& all_sent,
                    Event& over) {
  co_await send_items(call, recorded, speed, begin, all_sent);
  over.set();
}

// Takes what nobody compares, until the call has ended. Otherwise the handler and the caller would wait for each other.
Task<void> drain(RawCall& call, Event& over) {
  for (;;) {
    const Result<std::optional<RawCall::Answer>> item = co_await call.read();
    if (!item || !*item) break;
  }
  over.set();
}

// The next item of the handler in the recording.
std::optional<StreamEvent> next_expected(StreamEvents& events) {
  for (;;) {
    std::optional<StreamEvent> event = events.next();
    if (!event || event->kind == StreamEvent::Kind::handler_item) return event;
  }
}

bool is_item(const StreamEvent& expected, const RawCall::Answer& item) {
  return expected.bytes == item.body.size() + item.payload.size() &&
         expected.checksum == crc32c(crc32c(as_bytes(item.body)), as_bytes(item.payload));
}

}  // namespace

Task<ReplayedStream> replay_stream(RawCall& call, const Method& method, const observe::RecordedCall& recorded,
                                   double speed, Time begin) {
  ReplayedStream outcome;
  Event over;  // All is sent, or drain() has seen the end of the call.
  Scope tasks;
  outcome.all_sent = !method.streams_in;
  if (method.streams_in) tasks.spawn(send_all(call, recorded, speed, begin, outcome.all_sent, over));
  StreamEvents events(recorded.events);
  std::optional<StreamEvent> expected = next_expected(events);
  while (method.streams_out) {
    if (recorded.truncated && !expected) {
      // The handler may have sent more, and may go on for ever.
      if (outcome.all_sent) co_return outcome;
      tasks.spawn(drain(call, over));
      co_await over.wait();
      co_return outcome;
    }
    const Result<std::optional<RawCall::Answer>> item = co_await call.read();
    if (!item || !*item) break;
    outcome.same_items = outcome.same_items && expected && is_item(*expected, **item);
    expected = next_expected(events);
  }
  if (expected) outcome.same_items = false;
  outcome.answer = co_await call.answer();
  co_return outcome;
}

}  // namespace hawser::cli
