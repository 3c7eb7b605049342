#include "hawser/client.h"

#include <algorithm>
#include <utility>

#include "rpc/client_state.h"
#include "transport/framed_connection.h"

namespace hawser {
namespace {

Error not_connected() {
  return {ErrorCode::not_sent, ErrorScope::connection, Initiator::local, 0,
          "not connected: co_await connect(address) first"};
}

// Waits for the server's hello.
class ServerHello final : rpc::Handshake::Done {
 public:
  ServerHello(Loop& loop, std::unique_ptr<transport::Stream> stream, Time deadline, const wire::Hello& ours)
      : arrived_(loop), handshake_(loop, std::move(stream), deadline, *this) {
    handshake_.send(ours);
  }
  Task<Result<wire::Hello>> get() {
    while (!hello_) {
      auto arrived = arrived_.wait();
      co_await arrived;
    }
    co_return std::move(*hello_);
  }
  std::unique_ptr<transport::Stream> take_stream() noexcept { return handshake_.take_stream(); }

 private:
  void on_hello(rpc::Handshake&, Result<wire::Hello> hello) override {
    hello_.emplace(std::move(hello));
    arrived_.notify_all();
  }
  std::optional<Result<wire::Hello>> hello_;
  exec::Signal arrived_;
  rpc::Handshake handshake_;
};

}  // namespace

Client::Client(Loop* loop, std::shared_ptr<transport::Network> network, ClientOptions options)
    : state_(std::make_unique<State>(loop, std::move(network), std::move(options))), link_(&state_->link) {
  state_->link.reason = not_connected();
}

Client::Client(Loop& loop, std::shared_ptr<transport::Network> network, ClientOptions options)
    : Client(&loop, std::move(network), std::move(options)) {}

Client::~Client() = default;

Task<Result<void>> Client::connect(std::string address) { return state_->connect(std::move(address)); }
void Client::close() { state_->close(); }
std::size_t Client::calls_in_flight() const noexcept {
  return state_->session ? state_->session->calls_in_flight() : 0;
}
Time Client::last_used() const noexcept { return state_->session ? state_->session->last_used() : Time{}; }
bool Client::going_away() const noexcept { return state_->session && state_->session->going_away(); }
std::string_view Client::transport() const noexcept {
  return state_->session ? state_->session->connection().transport() : std::string_view();
}
const std::string& Client::address() const noexcept { return state_->address; }

Task<Result<Duration>> Client::ping() {
  const std::shared_ptr<rpc::ClientSession> session = state_->session;
  if (!session) co_return std::unexpected(not_connected());
  auto asked = session->ping();
  co_return co_await std::move(asked);
}

// ---- State ----

Client::State::~State() {
  scope.clear();
  close();
}

Task<Result<void>> Client::State::connect(std::string to) {
  if (loop == nullptr) loop = Loop::current();
  if (loop == nullptr) {
    co_return fail(ErrorCode::invalid_argument,
                   "connect() runs on no loop: await it within sync_wait() or Loop::run(), or give the Client a loop");
  }
  if ((attempt_at_hand || session) && to != address) {
    co_return fail(ErrorCode::invalid_argument,
                   "this client is connected, or connecting, to " + address + ": close() it first, or use another");
  }
  if (session) co_return Result<void>{};
  if (!attempted) attempted = std::make_unique<exec::Signal>(*loop);
  std::shared_ptr<Attempt> shared = attempt_at_hand;
  if (!shared) {
    shared = attempt_at_hand = std::make_shared<Attempt>();
    address = std::move(to);
    scope.spawn(attempt(shared));
  }
  while (!shared->outcome) {
    auto finished = attempted->wait();
    co_await finished;
  }
  co_return *shared->outcome;
}

Task<void> Client::State::attempt(std::shared_ptr<Attempt> own) {
  auto opening = open_session();
  own->outcome.emplace(co_await std::move(opening));
  attempt_at_hand.reset();
  attempted->notify_all();
}

Task<Result<void>> Client::State::open_session() {
  const Time deadline = loop->now() + options.connect_timeout;
  auto dialing = network->connect(*loop, address, options.connect_timeout);
  Result<std::unique_ptr<transport::Stream>> stream = co_await std::move(dialing);
  if (!stream) co_return std::unexpected(std::move(stream.error()));
  const auto message_bytes_max =
      static_cast<std::uint32_t>(std::min<std::size_t>(options.message_bytes_max, UINT32_MAX));
  ServerHello waiting(*loop, std::move(*stream), deadline,
                      {.version_least = wire::version,
                       .version_most = wire::version,
                       .checksum = options.checksum,
                       .message_bytes_max = message_bytes_max,
                       .stream_window_bytes = options.stream_window_bytes});
  auto answered = waiting.get();
  Result<wire::Hello> hello = co_await std::move(answered);
  if (!hello) co_return std::unexpected(std::move(hello.error()));
  if (hello->refusal) co_return std::unexpected(std::move(*hello->refusal));
  if (hello->version_most != wire::version || hello->calls_max == 0 ||
      hello->message_bytes_max < transport::FramedConnection::prefix_bytes + wire::header_bytes) {
    co_return fail(ErrorCode::protocol_error, "the server's hello makes no sense", ErrorScope::connection,
                   Initiator::peer);
  }
  auto connection = std::make_unique<transport::FramedConnection>(
      *loop, waiting.take_stream(), transport::FramedOptions{.message_bytes_max = options.message_bytes_max});
  const rpc::SessionSettings settings{
      .checksum = hello->checksum,
      .send_bytes_max = std::min<std::size_t>(hello->message_bytes_max, options.message_bytes_max) -
                        transport::FramedConnection::prefix_bytes,
      .calls_max = std::min<std::size_t>(options.calls_in_flight_max, hello->calls_max),
      .peer_window_bytes = hello->stream_window_bytes,
      .own_window_bytes = options.stream_window_bytes,
      .backlog_bytes_max = options.send_backlog_bytes_max,
      .ping_interval = options.ping_interval};
  session = std::make_shared<rpc::ClientSession>(*loop, std::move(connection), settings, options.call_timeout,
                                                 static_cast<rpc::ClientSession::Owner&>(*this));
  link.port = session.get();
  session->start();
  co_return Result<void>{};
}

void Client::State::close() {
  if (session) session->close();
}

void Client::State::on_session_end(const Error& reason) {
  link.port = nullptr;
  link.reason = reason;
  link.reason.text = "not connected any more: " + reason.text;
  // Destroyed by the loop, since this may come from within the session.
  loop->post([ended = std::move(session)] {});
}

}  // namespace hawser
