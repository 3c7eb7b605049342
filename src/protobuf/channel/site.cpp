#include "protobuf/channel/site.h"

#include <utility>

#include "base/try.h"
#include "hawser/when.h"
#include "hawser/with_timeout.h"
#include "protobuf/channel/connection.h"
#include "protobuf/channel/message_call.h"
#include "rpc/client/client_access.h"

namespace hawser::pb {

namespace {

bool may_repeat(const Error& error) noexcept {
  return error.code == hawser::ErrorCode::not_sent || error.code == hawser::ErrorCode::unavailable;
}

}  // namespace

// ---- Work ----

Work::~Work() { end(fail(hawser::ErrorCode::unavailable, "the loops of the channel have ended")); }

void Work::end(Result<RawReply> reply) {
  if (const auto ending = std::exchange(call, nullptr)) {
    ending->end(std::move(reply), site->options().client.decode_limits, method->response);
  }
}

// ---- ChannelSite ----

ChannelSite::ChannelSite(Loop& loop, std::string address, const ChannelOptions& options)
    : loop_(loop), address_(std::move(address)), options_(options) {}

ChannelSite::~ChannelSite() { scope_.clear(); }

void ChannelSite::begin(std::unique_ptr<Work> work) { scope_.spawn(execute(std::move(work))); }

Task<void> ChannelSite::execute(std::unique_ptr<Work> work) {
  Result<RawReply> reply = fail(hawser::ErrorCode::cancelled, "the caller cancelled the call");
  if (!work->call->cancelled()) {
    const Time deadline = loop_.after(work->timeout);
    const std::stop_token cancelled = work->call->stop.get_token();
    if (deadline == Time::max()) {
      reply = co_await attempts(*work, deadline, cancelled);
    } else {
      auto run = [&](std::stop_token token) { return attempts(*work, deadline, std::move(token)); };
      reply = co_await with_timeout(work->timeout, run, cancelled);
    }
  }
  if (!reply) {
    for (OwnedStream& stream : work->streams) {
      co_await stream->finish_on(loop_);
    }
  }
  work->end(std::move(reply));  // May destroy the channel, which does not use this site.
}

Task<Result<RawReply>> ChannelSite::attempts(Work& work, Time deadline, std::stop_token token) {
  return work.backup_after ? with_backup(work, deadline, std::move(token)) : retrying(work, deadline, std::move(token));
}

Task<Result<RawReply>> ChannelSite::with_backup(Work& work, Time deadline, std::stop_token token) {
  std::stop_source others;
  const std::stop_callback forward(token, [&others] { std::stop_source(others).request_stop(); });
  auto second = [&]() -> Task<Result<RawReply>> {
    CO_TRY(co_await loop_.sleep(*work.backup_after, others.get_token()));
    work.call->backup_sent = true;
    co_return co_await retrying(work, deadline, others.get_token());
  };
  auto first = co_await when_any(others, retrying(work, deadline, others.get_token()), second());
  if (first.index == 0) co_return std::get<0>(std::move(first.result));
  co_return std::get<1>(std::move(first.result));
}

Task<Result<RawReply>> ChannelSite::retrying(Work& work, Time deadline, std::stop_token token) {
  for (int tries = 0;; ++tries) {
    Result<RawReply> reply = co_await attempt(work, deadline, token);
    if (reply || tries >= work.max_retry || !may_repeat(reply.error()) || token.stop_requested()) co_return reply;
    ++work.call->retried;
  }
}

Task<Result<RawReply>> ChannelSite::attempt(Work& work, Time deadline, std::stop_token token) {
  CO_TRY(const Shared& connection, co_await acquire(work.compression, token));
  if (!work.streams.empty()) {
    co_return co_await open_stream(work, connection, std::move(token));
  }
  CallOptions options;
  options.timeout = deadline == Time::max() ? forever : std::max<Duration>(deadline - loop_.now(), Duration(1));
  options.token = token;
  options.attachment = work.attachment.bytes();
  options.metadata = work.metadata;
  if (token.stop_requested()) co_return fail(hawser::ErrorCode::cancelled, "the caller cancelled the call");
  Result<RawReply> reply;
  {
    MessageCall call(detail::ClientAccess::link(connection->client), work.method->name, work.request, options);
    co_await call.executed();
    reply = call.take();
  }
  release(work.compression, connection);
  co_return reply;
}

Task<Result<ChannelSite::Shared>> ChannelSite::acquire(CompressType compression, std::stop_token token) {
  Shared connection;
  if (options_.connection_type == "single") {
    Shared& shared = single_[compression];
    // A server that is stopping accepts no further call. Its connection stays until the calls over it have ended.
    if (shared == nullptr || shared->client.going_away()) {
      shared = std::make_shared<Connection>(loop_, options_, compression);
    }
    connection = shared;
  } else {
    std::vector<Shared>& idle = idle_[compression];
    while (connection == nullptr && !idle.empty()) {
      connection = std::move(idle.back());
      idle.pop_back();
      if (!connection->client.connected() || connection->client.going_away()) connection = nullptr;
    }
    if (connection == nullptr) connection = std::make_shared<Connection>(loop_, options_, compression);
  }
  if (connection->client.connected()) co_return connection;
  if (!std::exchange(connection->connecting, true)) {
    connection->tried.reset();
    scope_.spawn(connect(connection));
  }
  CO_TRY(co_await connection->tried.wait(token));
  if (!connection->outcome) {
    Error error = connection->outcome.error();
    if (error.code != hawser::ErrorCode::invalid_argument) error.code = hawser::ErrorCode::not_sent;
    co_return fail(std::move(error));
  }
  co_return connection;
}

void ChannelSite::release(CompressType compression, const Shared& connection) {
  if (options_.connection_type != "pooled" || !connection->client.connected()) return;
  std::vector<Shared>& idle = idle_[compression];
  if (idle.size() < options_.connections_idle_max) idle.push_back(connection);
}

// Belongs to the site and not to the call that begins it, since others wait for it too.
Task<void> ChannelSite::connect(Shared connection) {
  connection->outcome = co_await connection->client.connect(address_);
  connection->connecting = false;
  connection->tried.set();
}

}  // namespace hawser::pb
