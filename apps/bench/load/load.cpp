#include "bench/load/load.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "bench/load/handlers.h"
#include "hawser/loan.h"
#ifdef HAWSER_BENCH_PROTOBUF
#include "bench/load/protobuf_echo.h"
#endif

namespace hawser::bench {
namespace {

// One reply of so many is compared as a whole; of the others the first and last bytes are compared.
constexpr std::uint64_t calls_per_full_check = 64;
// Limits the rate of calls to a server that refuses each of them.
constexpr Duration pause_after_error = std::chrono::milliseconds(1);

bool matches(std::string_view sent, std::string_view reply, Check check) noexcept { return same(sent, reply, check); }
bool matches(std::string_view sent, const Ack& reply, Check) noexcept { return ack_of(sent) == reply; }

// A loan that has the ends of `payload`, and between them what was there.
Buffer loan_with_ends(const Client& client, std::string_view payload) {
  Buffer loaned = loan(client, payload.size());
  const std::size_t end = std::min<std::size_t>(payload.size(), sizeof(std::uint64_t));
  const std::size_t behind = payload.size() - end;
  std::memcpy(loaned.mutable_data(), payload.data(), end);
  std::memcpy(loaned.mutable_data() + behind, payload.data() + behind, end);
  return loaned;
}

// The argument of the calls of one caller of `handler`. Lives until its last call has ended.
template <auto handler>
struct LoadArgument {
  static constexpr bool made_once = false;  // All calls of one caller have the same payload.
  std::string_view of(std::string_view payload) const noexcept { return payload; }
};

#ifdef HAWSER_BENCH_PROTOBUF
template <>
struct LoadArgument<&::bench::Echo::Call> {
  static constexpr bool made_once = true;  // As in the benchmarks of other systems.
  const ::bench::Payload& of(std::string_view payload) {
    if (message.data().empty()) message.set_data(payload.data(), payload.size());
    return message;
  }
  ::bench::Payload message;
};

bool matches(std::string_view sent, const ::bench::Payload& reply, Check check) noexcept {
  return same(sent, reply.data(), check);
}
#endif

// Longest sleep of the pacer, so that it notices the end.
constexpr Duration pace_step = std::chrono::milliseconds(20);

}  // namespace

// Suspends until a caller is free.
class Load::FreeCaller {
 public:
  explicit FreeCaller(Load& load) noexcept : load_(load) {}
  FreeCaller(const FreeCaller&) = delete;
  FreeCaller& operator=(const FreeCaller&) = delete;
  ~FreeCaller() { load_.starved_ = nullptr; }

  bool await_ready() const noexcept { return !load_.free_.empty(); }
  void await_suspend(std::coroutine_handle<> waiting) noexcept { load_.starved_ = waiting; }
  void await_resume() const noexcept {}

 private:
  Load& load_;
};

Load::Load(Loop& loop, const RunOptions& options, Payload payload)
    : loop_(loop),
      payload_(std::move(payload)),
      reply_(options.reply),
      handler_(options.handler),
      loan_(options.loan),
      rate_per_s_(options.rate_per_s) {}

void Load::add(Client& client) {
#ifdef HAWSER_BENCH_PROTOBUF
  if (handler_ == HandlerKind::protobuf) return add_to<&::bench::Echo::Call>(client);
#endif
  if (reply_ == ReplyKind::echo) {
    handler_ == HandlerKind::function ? add_to<echo>(client) : add_to<echo_task>(client);
  } else {
    handler_ == HandlerKind::function ? add_to<ack>(client) : add_to<ack_task>(client);
  }
}

template <auto handler>
void Load::add_to(Client& client) {
  ++cold_;
  if (rate_per_s_ <= 0) {
    callers_.spawn(call_on<handler>(client));
    return;
  }
  free_.push_back(&client);
  if (cold_ == 1) callers_.spawn(pace<handler>());
}

void Load::fail(std::string text) {
  if (errors_++ == 0) first_error_ = std::move(text);
}

// Returns whether the reply is right. Counts the error otherwise.
bool Load::settle(std::uint64_t number, Check check, const auto& reply) {
  ++calls_ended_;
  if (!reply) [[unlikely]] {
    fail(reply.error().describe());
    return false;
  }
  if (matches(payload_.of(number), reply->value(), check)) [[likely]]
    return true;
  fail("a reply is not what was sent");
  return false;
}

template <auto handler>
Task<void> Load::call_on(Client& client) {
  LoadArgument<handler> argument;
  const std::uint64_t first = calls_begun_;
  bool cold = true;
  auto start = Clock::now();
  while (!stopping_) {
    const std::uint64_t next = calls_begun_++;
    const std::uint64_t number = LoadArgument<handler>::made_once ? first : next;
    const std::string_view payload = payload_.of(number);
    const Buffer loaned = loan_ ? loan_with_ends(client, payload) : Buffer();
    const auto reply = co_await client.call<handler>(argument.of(loan_ ? loaned.text() : payload)).reply();
    const auto end = Clock::now();
    const bool whole = !loan_ && (cold || next % calls_per_full_check == 0);
    const Check check = whole ? Check::all : Check::ends;
    if (cold) --cold_;
    cold = false;
    if (settle(number, check, reply)) [[likely]]
      record(start, end);
    if (!reply) [[unlikely]] {
      if (!client.connected()) co_return;
      co_await loop_.sleep(pause_after_error);
      start = Clock::now();
      continue;
    }
    // Comparing megabytes takes time that must not count for the next call.
    start = check == Check::all ? Clock::now() : end;
  }
}

void Load::add(HttpCaller& caller) {
  ++cold_;
  callers_.spawn(call_over_http(caller));
}

Task<void> Load::call_over_http(HttpCaller& caller) {
  const std::string text = caller.text_of(payload_.of(calls_begun_));
  bool cold = true;
  auto start = Clock::now();
  while (!stopping_) {
    const std::uint64_t number = calls_begun_++;
    const Result<std::string> reply = co_await caller.call(text);
    const auto end = Clock::now();
    ++calls_ended_;
    const Check check = cold || number % calls_per_full_check == 0 ? Check::all : Check::ends;
    if (cold) --cold_;
    cold = false;
    if (reply && same(text, *reply, check)) [[likely]] {
      record(start, end);
    } else {
      fail(reply ? "a reply is not what was sent" : reply.error().describe());
    }
    if (!reply) [[unlikely]] {
      if (reply.error().scope == ErrorScope::connection || reply.error().code == ErrorCode::unavailable) co_return;
      co_await loop_.sleep(pause_after_error);
      start = Clock::now();
      continue;
    }
    start = check == Check::all ? Clock::now() : end;
  }
}

template <auto handler>
Task<void> Load::pace() {
  const auto begin = Clock::now();
  while (!stopping_) {
    const double due_s = static_cast<double>(calls_begun_) / rate_per_s_;
    const auto intended = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due_s));
    if (const auto now = Clock::now(); intended > now) {
      co_await loop_.sleep(std::min<Duration>(intended - now, pace_step));
    } else if (free_.empty()) {
      co_await FreeCaller(*this);
    } else {
      Client& client = *free_.front();
      if (!client.connected()) co_return;
      free_.pop_front();
      callers_.spawn(call_once<handler>(client, calls_begun_++, intended));
    }
  }
}

template <auto handler>
Task<void> Load::call_once(Client& client, std::uint64_t number, Clock::time_point intended) {
  const std::string_view payload = payload_.of(number);
  LoadArgument<handler> argument;
  const auto reply = co_await client.call<handler>(argument.of(payload)).reply();
  const auto end = Clock::now();
  if (settle(number, number % calls_per_full_check == 0 ? Check::all : Check::ends, reply)) [[likely]]
    record(intended, end);
  free_.push_back(&client);
  if (starved_) loop_.resume_soon(std::exchange(starved_, nullptr));
}

}  // namespace hawser::bench
