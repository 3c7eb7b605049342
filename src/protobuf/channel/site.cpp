#include "protobuf/channel/site.h"

#include <coroutine>
#include <cstring>
#include <utility>

#include "hawser/call.h"
#include "hawser/detail/call_channel.h"
#include "hawser/when.h"
#include "hawser/with_timeout.h"
#include "rpc/client/client_access.h"

namespace hawser::pb {

namespace {

// A call whose argument and result are bytes of messages.
class MessageCall final : public detail::CallOperation {
 public:
  MessageCall(detail::ClientLink& link, const std::string& name, const Buffer& body, const CallOptions& options)
      : CallOperation(link), body_(body) {
    request_.method = codec::fnv1a32(name);
    request_.signature = message_signature();
    request_.name = name;
    request_.size.body = body.size();
    request_.options = &options;
  }
  ~MessageCall() { withdraw(); }

  void measure() noexcept override {}
  void encode(std::byte* body, ConstBuffer*) override {
    if (!body_.empty()) std::memcpy(body, body_.data(), body_.size());
  }
  void decode(const detail::Received& reply) override {
    reply_.body = Buffer::keep(reply.head_block, reply.body.data(), reply.body.size());
    if (!reply.attachment.empty()) {
      Block* const block = reply.attachment.data() >= reply.body.data() &&
                                   reply.attachment.data() <= reply.body.data() + reply.body.size()
                               ? reply.head_block
                               : reply.payload_block;
      reply_.attachment = Buffer::keep(block, reply.attachment.data(), reply.attachment.size());
    }
    reply_.metadata = reply.metadata.copy();
  }

  auto answered() noexcept {
    struct Awaiter {
      MessageCall& call;
      bool await_ready() const noexcept { return false; }
      bool await_suspend(std::coroutine_handle<> waiting) const {
        call.start();
        return call.wait(waiting);
      }
      void await_resume() const noexcept { call.resumed(); }
    };
    return Awaiter{*this};
  }
  Result<RawReply> take() {
    if (error()) return std::unexpected(std::move(*error()));
    return std::move(reply_);
  }

 private:
  const Buffer& body_;
  RawReply reply_;
};

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

// ---- Site ----

struct Site::Connection {
  Connection(Loop& loop, const ChannelOptions& with, CompressType compression) {
    ClientOptions options = with.client;
    options.connect_timeout = std::chrono::milliseconds(with.connect_timeout_ms);
    if (with.protocol == "hawser") {
      native.emplace(loop, std::move(options));
    } else {
      BaiduStdClientOptions baidu{.client = std::move(options), .credential = with.credential};
      baidu.compression = static_cast<BaiduStdCompression>(compression);
      baidu.compress_bytes_min = 0;
      baidu_std.emplace(loop, std::move(baidu));
    }
  }
  Client& caller() { return native ? *native : baidu_std->caller(); }
  Task<Result<void>> connect(const std::string& address) {
    return native ? native->connect(address) : baidu_std->connect(address);
  }

  std::optional<Client> native;
  std::optional<BaiduStdClient> baidu_std;
  bool connecting = false;
  Event tried{true};  // Set unless an attempt to connect runs.
  Result<void> outcome;
};

Site::Site(Loop& loop, std::string address, const ChannelOptions& options)
    : loop_(loop), address_(std::move(address)), options_(options) {}

Site::~Site() { scope_.clear(); }

void Site::begin(std::unique_ptr<Work> work) { scope_.spawn(execute(std::move(work))); }

Task<void> Site::execute(std::unique_ptr<Work> work) {
  Result<RawReply> reply = fail(hawser::ErrorCode::cancelled, "the caller cancelled the call");
  if (!work->call->cancelled()) {
    const Time deadline = loop_.after(work->timeout);
    const std::stop_token cancelled = work->call->stop.get_token();
    if (deadline == Time::max()) {
      auto trying = attempts(*work, deadline, cancelled);
      reply = co_await std::move(trying);
    } else {
      auto run = [&](std::stop_token token) { return attempts(*work, deadline, std::move(token)); };
      auto trying = with_timeout(work->timeout, run, cancelled);
      reply = co_await std::move(trying);
    }
  }
  work->end(std::move(reply));  // May destroy the channel, which does not use this site.
}

Task<Result<RawReply>> Site::attempts(Work& work, Time deadline, std::stop_token token) {
  return work.backup_after ? with_backup(work, deadline, std::move(token)) : retrying(work, deadline, std::move(token));
}

Task<Result<RawReply>> Site::with_backup(Work& work, Time deadline, std::stop_token token) {
  std::stop_source others;
  const std::stop_callback forward(token, [&others] { std::stop_source(others).request_stop(); });
  auto second = [&]() -> Task<Result<RawReply>> {
    auto pause = loop_.sleep(*work.backup_after, others.get_token());
    const Result<void> slept = co_await std::move(pause);
    if (!slept) co_return std::unexpected(slept.error());
    work.call->backup_sent = true;
    auto trying = retrying(work, deadline, others.get_token());
    co_return co_await std::move(trying);
  };
  auto racing = when_any(others, retrying(work, deadline, others.get_token()), second());
  auto first = co_await std::move(racing);
  if (first.index == 0) co_return std::get<0>(std::move(first.result));
  co_return std::get<1>(std::move(first.result));
}

Task<Result<RawReply>> Site::retrying(Work& work, Time deadline, std::stop_token token) {
  for (int tries = 0;; ++tries) {
    auto trying = attempt(work, deadline, token);
    Result<RawReply> reply = co_await std::move(trying);
    if (reply || tries >= work.max_retry || !may_repeat(reply.error()) || token.stop_requested()) co_return reply;
    ++work.call->retried;
  }
}

Task<Result<RawReply>> Site::attempt(Work& work, Time deadline, std::stop_token token) {
  auto acquiring = acquire(work.compression, token);
  const Result<Shared> connection = co_await std::move(acquiring);
  if (!connection) co_return std::unexpected(connection.error());
  CallOptions options;
  options.timeout = deadline == Time::max() ? forever : std::max<Duration>(deadline - loop_.now(), Duration(1));
  options.token = token;
  options.attachment = work.attachment.bytes();
  options.metadata = work.metadata;
  if (token.stop_requested()) co_return fail(hawser::ErrorCode::cancelled, "the caller cancelled the call");
  Result<RawReply> reply;
  {
    MessageCall call(detail::ClientAccess::link((*connection)->caller()), work.method->name, work.request, options);
    auto answered = call.answered();
    co_await answered;
    reply = call.take();
  }
  release(work.compression, *connection);
  co_return reply;
}

Task<Result<Site::Shared>> Site::acquire(CompressType compression, std::stop_token token) {
  Shared connection;
  if (options_.connection_type == "single") {
    Shared& shared = single_[compression];
    // A server that is stopping accepts no further call. Its connection stays until the calls over it have ended.
    if (shared == nullptr || shared->caller().going_away()) {
      shared = std::make_shared<Connection>(loop_, options_, compression);
    }
    connection = shared;
  } else {
    std::vector<Shared>& idle = idle_[compression];
    while (connection == nullptr && !idle.empty()) {
      connection = std::move(idle.back());
      idle.pop_back();
      if (!connection->caller().connected() || connection->caller().going_away()) connection = nullptr;
    }
    if (connection == nullptr) connection = std::make_shared<Connection>(loop_, options_, compression);
  }
  if (connection->caller().connected()) co_return connection;
  if (!std::exchange(connection->connecting, true)) {
    connection->tried.reset();
    scope_.spawn(connect(connection));
  }
  auto waiting = connection->tried.wait(token);
  const Result<void> tried = co_await std::move(waiting);
  if (!tried) co_return std::unexpected(tried.error());
  if (!connection->outcome) {
    Error error = connection->outcome.error();
    if (error.code != hawser::ErrorCode::invalid_argument) error.code = hawser::ErrorCode::not_sent;
    co_return std::unexpected(std::move(error));
  }
  co_return connection;
}

void Site::release(CompressType compression, const Shared& connection) {
  if (options_.connection_type != "pooled" || !connection->caller().connected()) return;
  std::vector<Shared>& idle = idle_[compression];
  if (idle.size() < options_.connections_idle_max) idle.push_back(connection);
}

// Belongs to the site and not to the call that begins it, since others wait for it too.
Task<void> Site::connect(Shared connection) {
  auto connecting = connection->connect(address_);
  connection->outcome = co_await std::move(connecting);
  connection->connecting = false;
  connection->tried.set();
}

}  // namespace hawser::pb
