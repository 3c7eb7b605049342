#include <memory>
#include <utility>

#include "hawser/brpc.h"
#include "hawser/detail/loop_access.h"
#include "protocol/baidu_std/client_session.h"
#include "rpc/client/client_access.h"

namespace hawser {

struct BaiduStdClient::State final : prpc::ClientSession::Owner,
                                     detail::LoopUser,
                                     std::enable_shared_from_this<BaiduStdClient::State> {
  State(Loop* on, BaiduStdClientOptions with) : options(std::move(with)), loop(on) {
    link.reason = {ErrorCode::not_sent, ErrorScope::connection, Initiator::local, 0,
                   "not connected: co_await connect(address) first"};
  }
  ~State() {
    if (uses_loop) detail::LoopAccess::remove_user(*loop, *this);
  }

  void on_session_end(const Error& reason) override {
    link.channel = nullptr;
    link.reason = {ErrorCode::not_sent, ErrorScope::connection, reason.initiator, 0,
                   "not connected any more: " + reason.text};
    session.reset();  // The session keeps itself alive until its function returns.
  }
  void close(std::string why) {
    closed = true;
    if (session) session->end({ErrorCode::unavailable, ErrorScope::connection, Initiator::local, 0, std::move(why)});
  }
  void on_loop_end() noexcept override {
    close("the loop has ended");
    uses_loop = false;
    loop = nullptr;
  }

  const BaiduStdClientOptions options;
  Loop* loop;
  bool uses_loop = false;
  bool connecting = false;
  bool closed = false;  // close() was called, or the client destroyed, while connecting.
  std::shared_ptr<transport::Network> network;
  detail::ClientLink link;
  std::shared_ptr<prpc::ClientSession> session;
};

namespace {

Task<Result<void>> failed(std::string text) { co_return fail(ErrorCode::invalid_argument, std::move(text)); }

}  // namespace

BaiduStdClient::BaiduStdClient(BaiduStdClientOptions options)
    : calls_(options.client), state_(std::make_shared<State>(nullptr, std::move(options))) {
  state_->network = detail::ClientAccess::network(calls_);
  detail::ClientAccess::set_link(calls_, state_->link);
}

BaiduStdClient::BaiduStdClient(Loop& loop, BaiduStdClientOptions options)
    : calls_(loop, options.client), state_(std::make_shared<State>(&loop, std::move(options))) {
  state_->network = detail::ClientAccess::network(calls_);
  detail::ClientAccess::set_link(calls_, state_->link);
}

BaiduStdClient::~BaiduStdClient() { state_->close("the client was destroyed"); }

Task<Result<void>> BaiduStdClient::connect(std::string address) {
  // The client may be destroyed while this runs.
  const std::shared_ptr<State> state = state_;
  if (state->loop == nullptr) state->loop = Loop::current();
  if (state->loop == nullptr || (Loop::current() != nullptr && Loop::current() != state->loop)) {
    auto wrong = failed("connect() must run on the client's loop: await it within sync_wait() or Loop::run()");
    co_return co_await std::move(wrong);
  }
  if (state->connecting) {
    auto twice = failed("this client is connecting already: await that connect()");
    co_return co_await std::move(twice);
  }
  if (state->session) co_return Result<void>{};
  if (!std::exchange(state->uses_loop, true)) detail::LoopAccess::add_user(*state->loop, *state);
  state->connecting = true;
  state->closed = false;
  auto opening = state->network->connect(*state->loop, std::move(address), state->options.client.connect_timeout);
  Result<std::unique_ptr<transport::Stream>> stream = co_await std::move(opening);
  state->connecting = false;
  if (!stream) co_return std::unexpected(std::move(stream.error()));
  if (state->closed) co_return fail(ErrorCode::unavailable, "the client was closed", ErrorScope::connection);
  const auto session = std::make_shared<prpc::ClientSession>(*state->loop, std::move(*stream), state->options, *state);
  state->session = session;
  state->link.channel = session.get();
  session->begin();
  co_return Result<void>{};
}

bool BaiduStdClient::connected() const noexcept { return state_->link.channel != nullptr; }
void BaiduStdClient::close() { state_->close("the client was closed"); }
std::size_t BaiduStdClient::calls_in_flight() const noexcept {
  return state_->session ? state_->session->calls_in_flight() : 0;
}

}  // namespace hawser
