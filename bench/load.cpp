#include "load.h"

#include <string_view>
#include <utility>

#include "handlers.h"

namespace hawser::bench {
namespace {

// Every so many calls the whole reply is compared, and its ends otherwise.
constexpr std::uint64_t calls_per_full_check = 64;
// So that a server that refuses every call is not asked a million times a second.
constexpr Duration pause_after_error = std::chrono::milliseconds(1);

bool right(std::string_view sent, std::string_view reply, Check check) noexcept { return same(sent, reply, check); }
bool right(std::string_view sent, const Ack& reply, Check) noexcept { return ack_of(sent) == reply; }

}  // namespace

Load::Load(Loop& loop, const Options& options, std::size_t size_bytes)
    : loop_(loop), payload_(size_bytes), reply_(options.reply), handler_(options.handler) {}

void Load::add(Client& client) {
  ++cold_;
  if (reply_ == ReplyKind::echo) {
    callers_.spawn(handler_ == HandlerKind::function ? call_on<echo>(client) : call_on<echo_task>(client));
  } else {
    callers_.spawn(handler_ == HandlerKind::function ? call_on<ack>(client) : call_on<ack_task>(client));
  }
}

void Load::fail(std::string text) {
  if (errors_++ == 0) first_error_ = std::move(text);
}

template <auto handler>
Task<void> Load::call_on(Client& client) {
  bool cold = true;
  auto start = Clock::now();
  while (!stopping_) {
    const std::uint64_t number = calls_begun_++;
    const std::string_view payload = payload_.of(number);
    auto call = client.call<handler>(payload).reply();
    const auto reply = co_await std::move(call);
    const auto end = Clock::now();
    const Check check = cold || number % calls_per_full_check == 0 ? Check::all : Check::ends;
    if (cold) --cold_;
    cold = false;
    if (!reply) [[unlikely]] {
      fail(reply.error().describe());
      if (!client.connected()) co_return;
      auto pause = loop_.sleep(pause_after_error);
      co_await pause;
      start = Clock::now();
      continue;
    }
    if (right(payload, reply->value(), check)) [[likely]] {
      record(start, end);
    } else {
      fail("a reply is not what was sent");
    }
    // Comparing megabytes takes time that is not the next call's.
    start = check == Check::all ? Clock::now() : end;
  }
}

}  // namespace hawser::bench
