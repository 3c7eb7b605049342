#include "tests/simulation/client_actor.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/call_material.h"
#include "transport/network_access.h"

namespace hawser::simulation {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A method that the simulated server does not have.
std::string nobody_serves_this(std::uint64_t id);
std::string nobody_serves_this(std::uint64_t id) { return std::to_string(id); }

// ---- The course of a client ----

Task<void> ClientActor::run() {
  unsigned calls = 0;
  for (unsigned failures = 0; calls < world_.plan.calls && failures < 20;) {
    if (!co_await connect()) {
      ++failures;
      co_await world_.pause(milliseconds(50));
      continue;
    }
    while (calls_.size() >= world_.plan.calls_at_once) {
      co_await world_.pause(milliseconds(2));
    }
    calls_.spawn(one_call());
    ++calls;
    if (world_.random.chance(0.4)) {
      co_await world_.pause(milliseconds(world_.random.chance(0.2) ? 50 : 1));
    }
    if (world_.plan.profile.drops && client_ && world_.random.chance(0.05)) client_->close();
    if (world_.plan.profile.drops && connecting_ == 0 && world_.random.chance(0.05)) client_.reset();
  }
  if (world_.plan.profile.drops && world_.random.chance(0.3)) {
    co_await world_.pause(milliseconds(20));
    calls_.clear();
  }
  while (!calls_.empty()) {
    co_await calls_.join();
  }
  co_await settle();
}

Task<bool> ClientActor::connect() {
  if (!client_) client_ = std::make_unique<Client>(world_.loop, over(world_.network, world_.plan.client));
  if (client_->connected()) co_return true;
  struct Counted {
    explicit Counted(unsigned& counted) : count(counted) { ++count; }
    ~Counted() { --count; }
    unsigned& count;
  };
  const Counted counted(connecting_);
  ++connections_;
  const Time begin = world_.loop.now();
  Result<void> connected = co_await client_->connect("server:9000");
  const Profile& profile = world_.plan.profile;
  world_.checker.expect(connected || profile.faults || profile.restarts || profile.limits || profile.slow,
                        "connecting failed for no reason");
  world_.checker.expect(world_.loop.now() - begin <= world_.plan.client.connect_timeout + milliseconds(1),
                        "connecting took longer than connect_timeout");
  co_return connected.has_value();
}

// The server answers every call, also calls that nobody awaits any more, or the client gives it up.
Task<void> ClientActor::settle() {
  if (!client_ || !client_->connected()) co_return;
  const std::size_t before = client_->calls_in_flight();
  co_await world_.loop.sleep(std::chrono::seconds(60));
  world_.checker.expect(!client_->connected() || client_->calls_in_flight() == 0,
                        "calls stay in flight although nobody waits: " + std::to_string(before));
}

Task<void> ClientActor::one_call() {
  using Kind = Task<void> (ClientActor::*)();
  static constexpr Kind kinds[] = {
      &ClientActor::echo,    &ClientActor::given,       &ClientActor::mirror,        &ClientActor::numbers,
      &ClientActor::nothing, &ClientActor::fails,       &ClientActor::attached,      &ClientActor::into,
      &ClientActor::into,    &ClientActor::slow,        &ClientActor::connect_again, &ClientActor::slow_token,
      &ClientActor::unknown, &ClientActor::slow_mirror, &ClientActor::pipelined,     &ClientActor::dropped_pending,
      &ClientActor::upload,  &ClientActor::download,    &ClientActor::chat,          &ClientActor::ping};
  Task<void> call = (this->*kinds[world_.below(std::size(kinds))])();
  if (!world_.plan.profile.drops || !world_.random.chance(0.25)) {
    co_await std::move(call);
    co_return;
  }
  // The call runs in this scope. If it has not ended by then, the scope ends it.
  Scope scope;
  scope.spawn(std::move(call));
  co_await world_.pause(milliseconds(world_.random.chance(0.5) ? 1 : 20));
}

CallOptions ClientActor::draw_options(std::uint64_t id, const Canceller& canceller) {
  CallOptions options{.token = canceller.source.get_token()};
  if (world_.random.chance(0.2)) options.timeout = world_.up_to(milliseconds(world_.random.chance(0.5) ? 2 : 40));
  if (world_.random.chance(0.05)) options.timeout = forever;
  if (world_.plan.profile.transports && world_.random.chance(0.4)) {
    options.idempotent = true;
    world_.checker.may_repeat(id);
  }
  return options;
}

void ClientActor::check_error(const CallGuard& guard, const Began& began, const Error& error,
                              const CallOptions* options) {
  const Profile& profile = world_.plan.profile;
  const bool losses = profile.faults || profile.drops || profile.restarts || profile.transports;
  const Duration timeout = options != nullptr && options->timeout ? *options->timeout : world_.plan.client.call_timeout;
  bool expected = false;
  switch (error.code) {
    case ErrorCode::cancelled:
      expected = (options != nullptr && options->token.stop_requested()) || profile.restarts;
      break;
    case ErrorCode::deadline_exceeded: expected = world_.loop.now() - began.time >= timeout; break;
    case ErrorCode::overloaded: expected = profile.limits && names_small_limit(world_.plan, error.text); break;
    case ErrorCode::limit_exceeded: expected = profile.limits; break;
    case ErrorCode::not_sent:
    case ErrorCode::outcome_unknown: expected = losses; break;
    case ErrorCode::unavailable: expected = profile.restarts; break;
    default: break;
  }
  world_.checker.expect(expected, "failed for no reason: " + error.describe(), guard.id);
}

// ---- Calls with one reply ----

Task<void> ClientActor::echo() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "echo");
  Material data(guard.id, draw_size(world_.random));
  const std::uint32_t reply_bytes = draw_size(world_.random);
  const Canceller canceller(world_, world_.plan.profile.drops && world_.random.chance(0.3));
  const CallOptions options = draw_options(guard.id, canceller);
  const Began began = begin();
  const Result<std::string> reply = co_await client_->call<&Service::echo>(options, guard.id, data.text, reply_bytes);
  data.spoil();
  const Duration timeout = options.timeout.value_or(world_.plan.client.call_timeout);
  world_.checker.expect(timeout == forever || world_.loop.now() - began.time <= timeout + milliseconds(1),
                        "a call outlived its timeout", guard.id);
  if (!ended(guard, began, reply, &options)) co_return;
  world_.checker.expect(reply->size() == reply_bytes && is_content(guard.id ^ reply_mark, *reply),
                        "a reply has another's bytes", guard.id);
}

// Arguments that the call owns.
Task<void> ClientActor::given() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "given");
  const std::uint32_t reply_bytes = draw_size(world_.random);
  const Canceller canceller(world_, world_.plan.profile.drops && world_.random.chance(0.3));
  const CallOptions options = draw_options(guard.id, canceller);
  const Began began = begin();
  std::optional<Result<std::string>> reply;
  if (world_.random.chance(0.5)) {
    reply.emplace(co_await client_->call<&Service::echo>(options, guard.id, content(guard.id, draw_size(world_.random)),
                                                         reply_bytes));
  } else {
    Result<PendingCall<&Service::echo>> sent = co_await client_->send_request<&Service::echo>(
        options, guard.id, content(guard.id, draw_size(world_.random)), reply_bytes);
    if (sent) {
      reply.emplace(co_await std::move(*sent));
    } else {
      reply.emplace(std::unexpected(sent.error()));
    }
  }
  if (!ended(guard, began, *reply, &options)) co_return;
  world_.checker.expect((*reply)->size() == reply_bytes && is_content(guard.id ^ reply_mark, **reply),
                        "a reply has another's bytes", guard.id);
}

Task<void> ClientActor::mirror() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "mirror");
  Material data(guard.id, draw_size(world_.random));
  const std::size_t size = data.text.size();
  const Began began = begin();
  const Result<std::string> reply = co_await client_->call<&Service::mirror>(guard.id, std::string_view(data.text));
  data.spoil();
  if (!ended(guard, began, reply)) co_return;
  world_.checker.expect(reply->size() == size && is_content(guard.id, *reply), "a reply has another's bytes", guard.id);
}

Task<void> ClientActor::numbers() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "numbers");
  std::vector<std::uint64_t> values(draw_size(world_.random) / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = guard.id + i;
  const Material text(guard.id, draw_size(world_.random));
  const Began began = begin();
  const Result<std::vector<std::uint64_t>> reply =
      co_await client_->call<&Service::numbers>(guard.id, values, text.text);
  if (!ended(guard, began, reply)) co_return;
  bool right = reply->size() == values.size();
  for (std::size_t i = 0; right && i < values.size(); ++i) right = (*reply)[i] == values[values.size() - 1 - i];
  world_.checker.expect(right, "a reply has another's numbers", guard.id);
}

Task<void> ClientActor::nothing() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "nothing");
  const Began began = begin();
  const Result<void> reply = co_await client_->call<&Service::nothing>(guard.id);
  ended(guard, began, reply);
}

Task<void> ClientActor::fails() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "fails");
  const auto how = static_cast<std::uint8_t>(world_.below(4));
  const Began began = begin();
  Result<void> reply;
  if (world_.random.chance(0.5)) {
    const Result<std::string> text = co_await client_->call<&Service::fails>(guard.id, how);
    if (!text) reply = std::unexpected(text.error());
  } else {
    const auto sleep_us = static_cast<std::uint32_t>(world_.below(5000));
    reply = co_await client_->call<&Service::slow_fails>(guard.id, how, sleep_us);
  }
  world_.checker.expect(!reply, "a call that fails succeeded", guard.id);
  if (reply) co_return;
  static constexpr ErrorCode codes[] = {ErrorCode::application, ErrorCode::invalid_argument, ErrorCode::internal,
                                        ErrorCode::internal};
  const Error& error = reply.error();
  const bool simulated = error.code == codes[how] && error.initiator == Initiator::peer &&
                         (how != 0 || error.application_code == static_cast<std::int32_t>(guard.id)) &&
                         (how == 3 || error.text.ends_with("simulated " + std::to_string(guard.id)));
  if (!simulated) check_error(guard, began, error, nullptr);
  guard.failed(error, lost(began));
}

Task<void> ClientActor::attached() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "attached");
  const Material data(guard.id, world_.below(4096));
  const Material attachment(guard.id ^ attachment_mark, draw_size(world_.random));
  const std::uint32_t reply_bytes = draw_size(world_.random);
  const Canceller canceller(world_, world_.plan.profile.drops && world_.random.chance(0.2));
  CallOptions options = draw_options(guard.id, canceller);
  options.attachment = as_bytes(attachment.text);
  options.metadata = {{"id", std::to_string(guard.id)}, {"x", content(guard.id, world_.below(300))}};
  const Began began = begin();
  const Result<Reply<std::string_view>> reply =
      co_await client_->call<&Service::attached>(options, guard.id, data.text, reply_bytes).reply();
  if (!ended(guard, began, reply, &options)) co_return;
  const std::string_view beside = as_text(reply->attachment());
  world_.checker.expect(reply->value().size() == data.text.size() && is_content(guard.id ^ reply_mark, reply->value()),
                        "a reply has another's bytes", guard.id);
  world_.checker.expect(beside.size() == reply_bytes && is_content(guard.id ^ reply_mark ^ attachment_mark, beside),
                        "a reply has another's attachment", guard.id);
  world_.checker.expect(reply->metadata().find("id") == std::to_string(guard.id ^ reply_mark),
                        "a reply has another's metadata", guard.id);
}

Task<void> ClientActor::into() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "into");
  const Material data(guard.id, draw_size(world_.random));
  const bool fits = world_.random.chance(0.8);
  Target target(world_, fits ? data.text.size() + world_.below(100) : 1 + world_.below(data.text.size() + 1));
  const bool too_small = target.bytes.size() < data.text.size();
  const Canceller canceller(world_, world_.plan.profile.drops && world_.random.chance(0.3));
  const CallOptions options = draw_options(guard.id, canceller);
  const Began began = begin();
  const bool sleeps = world_.random.chance(0.3);
  std::optional<Result<Reply<std::string_view>>> reply;
  if (sleeps) {
    const auto sleep_us = static_cast<std::uint32_t>(world_.below(5000));
    reply.emplace(
        co_await client_->call<&Service::slow_mirror>(options, guard.id, data.text, sleep_us).into(target.bytes));
  } else {
    reply.emplace(co_await client_->call<&Service::mirror>(options, guard.id, data.text).into(target.bytes));
  }
  if (!*reply && reply->error().code == ErrorCode::limit_exceeded && too_small) {
    guard.failed(reply->error(), false);
    co_return;
  }
  if (!ended(guard, began, *reply, &options)) co_return;
  world_.checker.expect(!too_small, "a reply fits into memory smaller than itself", guard.id);
  const std::string_view value = **reply.value();
  world_.checker.expect(value.size() == data.text.size() && is_content(guard.id, value), "a reply has another's bytes",
                        guard.id);
  const bool there = reinterpret_cast<const std::byte*>(value.data()) == target.bytes.data();
  world_.checker.expect(data.text.empty() || there, "a result is not where into() wants it", guard.id);
}

Task<void> ClientActor::slow() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "slow");
  const Material data(guard.id, draw_size(world_.random));
  const std::uint32_t reply_bytes = draw_size(world_.random);
  const auto sleep_us = static_cast<std::uint32_t>(world_.below(20'000));
  const Canceller canceller(world_, world_.plan.profile.drops && world_.random.chance(0.3));
  const CallOptions options = draw_options(guard.id, canceller);
  const Began began = begin();
  const Result<std::string> reply =
      co_await client_->call<&Service::slow>(options, guard.id, data.text, reply_bytes, sleep_us);
  if (!ended(guard, began, reply, &options)) co_return;
  world_.checker.expect(reply->size() == reply_bytes && is_content(guard.id ^ reply_mark, *reply),
                        "a reply has another's bytes", guard.id);
}

Task<void> ClientActor::slow_token() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "slow_token");
  const Material data(guard.id, draw_size(world_.random));
  const auto sleep_us = static_cast<std::uint32_t>(world_.below(world_.random.chance(0.1) ? 1'000'000 : 20'000));
  const Canceller canceller(world_, world_.plan.profile.drops && world_.random.chance(0.5));
  const CallOptions options = draw_options(guard.id, canceller);
  const Began began = begin();
  const Result<std::string> reply =
      co_await client_->call<&Service::slow_token>(options, guard.id, data.text, sleep_us);
  if (!ended(guard, began, reply, &options)) co_return;
  world_.checker.expect(reply->size() == data.text.size() && is_content(guard.id ^ reply_mark, *reply),
                        "a reply has another's bytes", guard.id);
}

Task<void> ClientActor::slow_mirror() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "slow_mirror");
  const Material data(guard.id, draw_size(world_.random));
  const auto sleep_us = static_cast<std::uint32_t>(world_.below(5'000));
  const Began began = begin();
  const Result<std::string> reply = co_await client_->call<&Service::slow_mirror>(guard.id, data.text, sleep_us);
  if (!ended(guard, began, reply)) co_return;
  world_.checker.expect(reply->size() == data.text.size() && is_content(guard.id, *reply),
                        "a reply has another's bytes", guard.id);
}

Task<void> ClientActor::unknown() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "unknown");
  const Began began = begin();
  const Result<std::string> reply = co_await client_->call<nobody_serves_this>(guard.id);
  world_.checker.expect(!reply, "a call of an unknown method succeeded", guard.id);
  if (reply) co_return;
  if (reply.error().code != ErrorCode::unknown_method) check_error(guard, began, reply.error(), nullptr);
  guard.failed(reply.error(), lost(began));
}

// ---- Requests whose reply is awaited later, or not at all ----

Task<void> ClientActor::pipelined() {
  struct Sent {
    std::unique_ptr<CallGuard> guard;
    Began began;
    CallOptions options;
    std::uint32_t reply_bytes;
    PendingCall<&Service::echo> pending;
  };
  std::vector<Sent> all;
  const std::uint64_t count = 1 + world_.below(6);
  for (std::uint64_t i = 0; i < count && client_; ++i) {
    auto guard = std::make_unique<CallGuard>(world_.checker, "pipelined");
    Material data(guard->id, draw_size(world_.random));
    const std::uint32_t reply_bytes = draw_size(world_.random);
    CallOptions options;
    if (world_.random.chance(0.3)) options.timeout = world_.up_to(milliseconds(2));
    const Began began = begin();
    Result<PendingCall<&Service::echo>> sent =
        co_await client_->send_request<&Service::echo>(options, guard->id, data.text, reply_bytes);
    data.spoil();
    if (sent) {
      all.push_back({std::move(guard), began, options, reply_bytes, std::move(*sent)});
    } else {
      check_error(*guard, began, sent.error(), &options);
      guard->failed(sent.error(), lost(began));
    }
  }
  while (!all.empty()) {
    const std::size_t which = world_.below(all.size());
    Sent one = std::move(all[which]);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
    const Result<std::string> reply = co_await std::move(one.pending);
    if (!ended(*one.guard, one.began, reply, &one.options)) continue;
    world_.checker.expect(reply->size() == one.reply_bytes && is_content(one.guard->id ^ reply_mark, *reply),
                          "a reply has another's bytes", one.guard->id);
  }
}

Task<void> ClientActor::dropped_pending() {
  if (!client_) co_return;
  CallGuard guard(world_.checker, "dropped_pending");
  const Material data(guard.id, draw_size(world_.random));
  const Began began = begin();
  const auto sleep_us = static_cast<std::uint32_t>(world_.below(2'000));
  const Result<PendingCall<&Service::slow>> sent =
      co_await client_->send_request<&Service::slow>(guard.id, data.text, std::uint32_t{100}, sleep_us);
  if (!sent) {
    check_error(guard, began, sent.error(), nullptr);
    guard.failed(sent.error(), lost(began));
    co_return;
  }
  co_await world_.pause(milliseconds(3));
}

// Connects again while other coroutines may be connecting too.
Task<void> ClientActor::connect_again() {
  if (!client_) co_return;
  co_await connect();
}

Task<void> ClientActor::ping() {
  if (!client_) co_return;
  const Result<Duration> answer = co_await client_->ping();
  const Profile& profile = world_.plan.profile;
  world_.checker.expect(answer || profile.faults || profile.drops || profile.restarts || profile.transports,
                        "a ping failed for no reason");
}

}  // namespace hawser::simulation
