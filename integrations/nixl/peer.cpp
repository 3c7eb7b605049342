#include "peer.h"

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "inbox.h"

namespace hawser::nixl {
namespace {

// Accesses of one transfer that are in progress at the same time. A connection has at most 4,096.
constexpr std::size_t accesses_max = 64;
// Bytes of notifications in one call.
constexpr std::size_t sent_bytes_max = std::size_t{1} << 20;

Error disconnected() {
  return Error::of_connection(ErrorCode::unavailable, "the agent was disconnected: load its metadata again to use it");
}

}  // namespace

Peer::Peer(std::shared_ptr<BackgroundLoops> loops, std::size_t loop, AgentInformation information, PeerOptions options)
    : loops_(std::move(loops)),
      loop_(loops_->loop(loop)),
      information_(std::move(information)),
      options_(std::move(options)) {}

void Peer::run_on_loop(const std::function<void()>& work) {
  if (Loop::current() == &loop_) return work();
  const auto done = std::make_shared<std::promise<void>>();
  std::future<void> ended = done->get_future();
  loop_.post([&work, done] {
    work();
    done->set_value();
  });
  ended.wait();
}

Result<void> Peer::connect() {
  // The task alone has the promise, so that a close() breaks it.
  auto done = std::make_shared<std::promise<Result<void>>>();
  std::future<Result<void>> ended = done->get_future();
  loop_.post([self = shared_from_this(), done = std::move(done)]() mutable {
    if (self->on_loop_ == nullptr) return;
    self->on_loop_->tasks.spawn([](Peer& peer, std::shared_ptr<std::promise<Result<void>>> outcome) -> Task<void> {
      const Result<std::shared_ptr<Client>> client = co_await peer.open();
      outcome->set_value(client ? Result<void>() : std::unexpected(client.error()));
    }(*self, std::move(done)));
  });
  try {
    return ended.get();
  } catch (const std::future_error&) {
    return fail(disconnected());
  }
}

void Peer::post(const std::shared_ptr<Transfer>& transfer, std::optional<std::string> notification) {
  transfer->begin(std::move(notification));
  loop_.post([self = shared_from_this(), transfer] {
    if (self->on_loop_ == nullptr) return transfer->end(ErrorCode::unavailable);
    self->on_loop_->active.emplace(transfer.get(), transfer);
    transfer->running_.spawn(self->run(*transfer));
  });
}

void Peer::cancel(const std::shared_ptr<Transfer>& transfer) {
  run_on_loop([this, &transfer] {
    if (!transfer->active()) return;
    transfer->running_.clear();
    if (on_loop_ != nullptr) on_loop_->active.erase(transfer.get());
    transfer->end(ErrorCode::cancelled);
  });
}

Result<void> Peer::notify(std::string message) {
  const std::lock_guard lock(mutex_);
  if (closed_) return fail(disconnected());
  if (pending_bytes_ + message.size() > pending_bytes_max) {
    return fail(ErrorCode::overloaded, std::to_string(pending_bytes_) + " bytes of notifications wait (limit: " +
                                           std::to_string(pending_bytes_max) + "): send fewer, or wait");
  }
  pending_bytes_ += message.size();
  pending_.push_back(std::move(message));
  if (std::exchange(sending_, true)) return {};
  loop_.post([self = shared_from_this()] {
    if (self->on_loop_ != nullptr) self->on_loop_->tasks.spawn(self->send_pending());
  });
  return {};
}

void Peer::close() {
  run_on_loop([this] {
    if (on_loop_ == nullptr) return;
    std::size_t lost = 0;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      lost = std::exchange(pending_, {}).size();
      pending_bytes_ = 0;
    }
    if (lost != 0) {
      loop_.log(LogLevel::warning, "nixl",
                std::to_string(lost) + " notifications were lost: the agent was disconnected");
    }
    const auto active = std::exchange(on_loop_->active, {});
    for (const auto& [transfer, kept] : active) {
      transfer->running_.clear();
      transfer->end(ErrorCode::unavailable);
    }
    on_loop_.reset();
  });
}

Task<Result<std::shared_ptr<Client>>> Peer::dial(std::string address) {
  const auto client = std::make_shared<Client>(options_.client);
  const Result<void> connected = co_await client->connect(address);
  if (!connected) co_return std::unexpected(connected.error());
  const Result<std::uint64_t> id = co_await client->call<&Inbox::identify>();
  if (!id) co_return std::unexpected(id.error());
  if (*id != information_.id) {
    co_return fail(Error::of_connection(ErrorCode::unavailable,
                                        "another agent listens at " + address + ": the metadata is of an earlier one"));
  }
  co_return client;
}

Task<Result<std::shared_ptr<Client>>> Peer::open() {
  OnLoop& state = *on_loop_;
  const Permit permit = co_await state.opening.lock();
  if (state.client != nullptr && state.client->connected()) co_return state.client;
  state.client = nullptr;
  Error last = Error::of_connection(ErrorCode::unavailable, "the agent has named no address");
  for (const std::string& address : information_.addresses) {
    Result<std::shared_ptr<Client>> client = co_await dial(address);
    if (client) {
      state.client = std::move(*client);
      co_return state.client;
    }
    last = std::move(client.error());
    loop_.log(LogLevel::info, "nixl", address + ": " + last.describe());
  }
  co_return fail(std::move(last));
}

Task<Result<void>> Peer::execute(const Transfer& transfer) {
  const Result<std::shared_ptr<Client>> client = co_await open();
  if (!client) co_return std::unexpected(client.error());
  RemoteMemory remote(**client);
  const RemoteOptions access{.timeout = options_.timeout};
  CallOptions call;
  call.timeout = options_.timeout;
  const std::vector<Transfer::Part>& parts = transfer.parts_;
  std::vector<std::string> messages;
  if (transfer.notification_) messages.push_back(*transfer.notification_);

  if (parts.size() == 1 && transfer.direction_ == Transfer::Direction::write && transfer.notification_) {
    co_return co_await remote.write_with_notify<&Inbox::notify>(parts.front().region, parts.front().batch, call,
                                                                options_.own_name, messages);
  }

  Result<void> outcome;
  std::size_t next = 0;
  const auto access_parts = [&]() -> Task<void> {
    while (next < parts.size() && outcome) {
      const Transfer::Part& part = parts[next++];
      Result<void> result;
      if (transfer.direction_ == Transfer::Direction::write) {
        result = co_await remote.write(part.region, part.batch, access);
      } else {
        result = co_await remote.read(part.region, part.batch, access);
      }
      if (!result && outcome) outcome = std::move(result);
    }
  };
  Scope accesses;
  for (std::size_t i = 0; i < std::min(parts.size(), accesses_max); ++i) accesses.spawn(access_parts());
  co_await accesses.join();
  if (outcome && transfer.notification_) {
    co_return co_await (*client)->call<&Inbox::notify>(call, options_.own_name, messages);
  }
  co_return outcome;
}

Task<void> Peer::run(Transfer& transfer) {
  const Result<void> outcome = co_await execute(transfer);
  if (!outcome) loop_.log(LogLevel::warning, "nixl", "transfer: " + outcome.error().describe());
  // The loop's reference, which may be the last one, ends after this task.
  auto node = on_loop_->active.extract(&transfer);
  loop_.post([kept = std::move(node.mapped())] {});
  transfer.end(outcome ? ErrorCode::ok : outcome.error().code);
}

Task<void> Peer::send_pending() {
  CallOptions call;
  call.timeout = options_.timeout;
  while (true) {
    std::vector<std::string> messages;
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t bytes = 0; !pending_.empty() && bytes < sent_bytes_max; pending_.pop_front()) {
        bytes += pending_.front().size();
        pending_bytes_ -= pending_.front().size();
        messages.push_back(std::move(pending_.front()));
      }
      if (messages.empty()) {
        sending_ = false;
        co_return;
      }
    }
    const Result<std::shared_ptr<Client>> client = co_await open();
    Result<void> sent;
    if (client) {
      sent = co_await (*client)->call<&Inbox::notify>(call, options_.own_name, messages);
    } else {
      sent = std::unexpected(client.error());
    }
    if (!sent) {
      loop_.log(LogLevel::warning, "nixl",
                std::to_string(messages.size()) + " notifications were lost: " + sent.error().describe());
    }
  }
}

}  // namespace hawser::nixl
