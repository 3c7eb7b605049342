#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hawser/call.h"
#include "hawser/codec/decoder.h"
#include "hawser/detail/destruction_notice.h"
#include "hawser/detail/state_owner.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/streaming_call.h"
#include "hawser/task.h"
#include "hawser/transports.h"

namespace hawser {

class OutgoingCall;

namespace detail {
template <class CallInfo>
class Interceptor;
template <class CallInfo, class F>
class FunctionInterceptor;
}  // namespace detail
namespace rpc {
class ClientProtocol;
struct ClientState;
}  // namespace rpc
namespace transport {
class Transport;
class Network;
class ClientSecurity;
}  // namespace transport

struct ClientOptions {
  // ---- Time
  Duration connect_timeout = std::chrono::seconds(5);  // Resolving the name, connecting and the HELLO together.
  // Default of CallOptions::timeout for calls without streams; `forever`: none. A call with streams has no deadline
  // unless CallOptions::timeout sets one.
  Duration call_timeout = std::chrono::seconds(30);

  // ---- Bounds: a call that exceeds one fails with an error that names the bound
  // Per connection; the server may announce a smaller number. Raise it together with calls_per_connection_max there.
  std::size_t calls_in_flight_max = 4096;
  std::size_t message_bytes_max = std::size_t{64} << 20;       // One request or reply with its attachment.
  std::size_t send_backlog_bytes_max = std::size_t{64} << 20;  // Requests that are committed and not sent yet.
  // Credit granted to the handler for each stream. At least 1. Raise it when a stream is slower than its path: it
  // carries one window per round trip at most.
  std::uint32_t stream_window_bytes = 256 * 1024;
  // Limits for the values of a received reply or stream item: depth of nesting, memory, collisions in hash containers.
  codec::DecodeLimits decode_limits = {};

  // ---- The connection
  // A peer that is silent for this time receives a PING. After the same time again, the connection ends. Lower it to
  // detect a lost host sooner.
  Duration ping_interval = std::chrono::seconds(15);
  bool checksum = false;  // Requests CRC32C on every frame. Enable it where memory or a path may damage data.

  // ---- Transports, security, shared resources
  // Transports that the client offers in addition to the byte stream. The server selects one.
  TransportOptions transports = {};
  std::shared_ptr<Runtime> runtime = {};  // Shared resources. Null: the runtime of the loop (LoopOptions::runtime).
  // Protects the connection: a TlsClient (hawser/tls.h). Null: plain text.
  std::shared_ptr<transport::ClientSecurity> security = {};
  // The protocol of the connection, set by grpc_client() (hawser/grpc_client.h) and baidu_std_client()
  // (hawser/brpc.h), which return ClientOptions. Null: the library's own.
  std::shared_ptr<const rpc::ClientProtocol> protocol = {};
  // Run around each call, as after Client::use(). Made by client_interceptor() (hawser/interceptor.h).
  std::vector<std::shared_ptr<detail::Interceptor<OutgoingCall>>> interceptors = {};
};

// One connection to a server. Any number of concurrent calls share it. The client belongs to one loop: the loop that
// the constructor receives, or else the loop on which connect() runs. It is used from that loop's thread only. Calls
// that are in flight when the client is destroyed end with an error.
class Client {
 public:
  explicit Client(ClientOptions options = {});
  Client(Loop& loop, ClientOptions options = {});
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  // Connects to "host:port", "unix:/path" or "unix:@name". Concurrent callers share one attempt and its result. A
  // client that is already connected to that address succeeds at once. After a connection was lost, connect() makes a
  // new one.
  // If only the transport of the connection breaks, the client fails over to another transport by itself. It sends
  // awaited calls there whose requests had not been sent, and sends idempotent calls again. New calls return to the
  // broken transport when it works again (TransportOptions::retry_min).
  Task<Result<void>> connect(std::string address);
  // True while there is a connection.
  bool connected() const noexcept { return link().channel != nullptr; }
  // Ends the connection. Calls in flight end with outcome_unknown, or with not_sent if their requests had not been
  // sent. A running attempt to connect or to fail over is abandoned: its connect() ends with `unavailable`. connect()
  // may be called again at once.
  void close();

  // Runs `interceptor` around each call that begins later, within those that were added before. It is a function object
  // that is called as Task<Result<void>>(OutgoingCall& call, Next next): hawser/interceptor.h, docs/interceptors.md.
  template <class F>
  void use(F interceptor) {
    add_interceptor(std::make_shared<detail::FunctionInterceptor<OutgoingCall, F>>(std::move(interceptor)));
  }

  HAWSER_ERROR_IF_BEGIN
  // Calls handler F of the server: `Result<R> reply = co_await client.call<f>(args...)`. See Call for reply() and
  // into().
  template <auto F, class... Given>
    requires(!std::is_same_v<std::remove_cvref_t<std::tuple_element_t<0, std::tuple<Given..., void>>>, CallOptions>)
  auto call(Given&&... arguments) HAWSER_FITTING_CONSTANTS {
    static_assert(!detail::MethodFacts<F>::streams, "hawser: this handler has streams: use client.open<f>(...)");
    return Call<F, detail::NoOptions, Given...>(link(), {}, stored<F, Given...>(std::forward<Given>(arguments)...));
  }
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  auto call(Options&& options, Given&&... arguments) HAWSER_FITTING_CONSTANTS {
    static_assert(!detail::MethodFacts<F>::streams, "hawser: this handler has streams: use client.open<f>(...)");
    return Call<F, CallOptions, Given...>(link(), std::forward<Options>(options),
                                          stored<F, Given...>(std::forward<Given>(arguments)...));
  }
  template <detail::WrongFunction F, class... Given>
    requires(F.wrong)
  void call(Given&&...) = delete;

  // Sends the request and returns a PendingCall, which is awaited later for the reply. The task completes when the
  // request has been sent. Arguments that are lvalues are read when the task is awaited. They must stay valid and
  // unchanged until it has completed.
  template <auto F, class... Given>
    requires(!std::is_same_v<std::remove_cvref_t<std::tuple_element_t<0, std::tuple<Given..., void>>>, CallOptions>)
  Task<Result<PendingCall<F>>> send_request(Given&&... arguments) HAWSER_FITTING_CONSTANTS {
    return send<PendingCall<F>>(
        make<F, PendingCall<F>, detail::NoOptions, Given...>({}, std::forward<Given>(arguments)...));
  }
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  Task<Result<PendingCall<F>>> send_request(Options&& options, Given&&... arguments) HAWSER_FITTING_CONSTANTS {
    return send<PendingCall<F>>(make<F, PendingCall<F>, CallOptions, Given...>(std::forward<Options>(options),
                                                                               std::forward<Given>(arguments)...));
  }
  template <detail::WrongFunction F, class... Given>
    requires(F.wrong)
  void send_request(Given&&...) = delete;

  // Begins a call with streams. The task completes when the request has been sent. Arguments: see send_request().
  template <auto F, class... Given>
    requires(!std::is_same_v<std::remove_cvref_t<std::tuple_element_t<0, std::tuple<Given..., void>>>, CallOptions>)
  Task<Result<StreamingCall<F>>> open(Given&&... arguments) HAWSER_FITTING_CONSTANTS {
    static_assert(detail::MethodFacts<F>::streams, "hawser: this handler has no streams: use client.call<f>(...)");
    return send<StreamingCall<F>>(
        make<F, StreamingCall<F>, detail::NoOptions, Given...>({}, std::forward<Given>(arguments)...));
  }
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  Task<Result<StreamingCall<F>>> open(Options&& options, Given&&... arguments) HAWSER_FITTING_CONSTANTS {
    static_assert(detail::MethodFacts<F>::streams, "hawser: this handler has no streams: use client.call<f>(...)");
    return send<StreamingCall<F>>(make<F, StreamingCall<F>, CallOptions, Given...>(std::forward<Options>(options),
                                                                                   std::forward<Given>(arguments)...));
  }
  template <detail::WrongFunction F, class... Given>
    requires(F.wrong)
  void open(Given&&...) = delete;
  HAWSER_ERROR_IF_END

  // Sends a PING and returns the round-trip time.
  Task<Result<Duration>> ping();
  // Number of calls that have no answer yet, including those in the pending call queue.
  std::size_t calls_in_flight() const noexcept;
  // Time at which a call last began or ended.
  Time last_used() const noexcept;
  // True after the server has announced that it is stopping (GOAWAY). Calls in flight continue; new calls are refused.
  bool going_away() const noexcept;
  // Name of the connection's transport, such as "tcp"; empty without a connection.
  std::string_view transport() const noexcept;
  // The enabled transports that did not carry the connection at the last attempt to connect, each with its reason.
  const std::vector<TransportFallback>& fallback_reasons() const noexcept;
  // Number of times that the connection has changed its transport since this client was constructed.
  std::uint64_t failovers() const noexcept;
  // Offers a transport to the server, such as hawser::rdma({...}), from the next connect() on. Replaces a transport of
  // the same name. Shorthand for TransportOptions::enable().
  void enable(TransportSpec transport);
  void enable_rdma(RdmaOptions options = {}) { enable(rdma(std::move(options))); }
  void enable_ucx(UcxOptions options = {}) { enable(ucx(std::move(options))); }
  void enable_shm(ShmOptions options = {}) { enable(shm(options)); }
  // The address of the last connect(); empty before.
  const std::string& address() const noexcept;
  // For the library: the transports that the options enable, without the byte stream.
  std::vector<std::shared_ptr<transport::Transport>> transports() const;
  // For the library: the memory that is exposed to the server.
  std::shared_ptr<detail::RegionTable> regions() const;

 private:
  friend class ClientPool;
  friend class RemoteMemory;
  friend struct detail::ClientAccess;
  friend class detail::BlockingSite;
  friend class detail::DestructionNotice;

  template <auto F, class... Given>
  static auto stored(Given&&... arguments) {
    return typename detail::ArgumentsOf<typename detail::MethodFacts<F>::args, Given...>::stored(
        std::forward<Given>(arguments)...);
  }
  template <auto F, class Sent, class Options, class... Given>
  auto make(Options options, Given&&... arguments) {
    return std::unique_ptr<typename Sent::Operation>(
        new detail::ArgumentOperation<F, typename Sent::Outcome, Options, Given...>(
            link(), std::move(options), stored<F, Given...>(std::forward<Given>(arguments)...)));
  }
  template <class Sent>
  static Task<Result<Sent>> send(std::unique_ptr<typename Sent::Operation> operation) {
    // Measured here and not when the task was created: arguments that are lvalues may have changed since.
    operation->measure();
    operation->start();
    struct UntilSent {
      typename Sent::Operation& waiting_for;
      bool await_ready() const noexcept { return false; }
      bool await_suspend(std::coroutine_handle<> waiting) const { return waiting_for.wait_sent(waiting); }
      void await_resume() const noexcept { waiting_for.resumed(); }
    };
    co_await UntilSent{*operation};
    // The request could not be sent. An early reply stays in the operation for the awaiter of the PendingCall.
    if (operation->done() && operation->error()) {
      Error error = std::move(*operation->error());
      operation.reset();  // Nobody uses the arguments after this, although the task may still exist.
      co_return std::unexpected(std::move(error));
    }
    co_return Sent(std::move(operation));
  }

  Client(Loop* loop, std::shared_ptr<transport::Network> network, ClientOptions options);
  detail::ClientLink& link() const noexcept { return *link_; }
  void add_interceptor(std::shared_ptr<detail::Interceptor<OutgoingCall>> interceptor);
  std::stop_token destruction_token() { return destruction_.token(); }

  detail::DestructionNotice destruction_;
  detail::StateOwner<rpc::ClientState> state_;
  detail::ClientLink* link_;
};

}  // namespace hawser
