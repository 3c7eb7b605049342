#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hawser/codec/decoder.h"
#include "hawser/detail/handler.h"
#include "hawser/detail/served_method.h"
#include "hawser/detail/state_owner.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/server_counters.h"
#include "hawser/task.h"
#include "hawser/transports.h"

namespace hawser {

class IncomingCall;
class ProtocolSpec;

namespace rpc {
struct Inspector;
}
namespace transport {
class Transport;
class Network;
class ServerSecurity;
}  // namespace transport

// Stop tokens of background work; see Server::spawn(). Both stops are requested on the loop's thread.
struct Background {
  // Requested when the server begins to stop. The work should end within the grace.
  std::stop_token stopping;
  // Requested at the end of the grace. Work that does not end within one more second, or within the length of the grace
  // if that is shorter, is destroyed.
  std::stop_token token;
};

namespace detail {

class RegionTable;
template <class CallInfo>
class Interceptor;
template <class CallInfo, class F>
class FunctionInterceptor;

// Background work that has not begun yet. It owns the objects that its task refers to.
class BackgroundWork {
 public:
  BackgroundWork() noexcept = default;
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;
  virtual ~BackgroundWork() = default;
  virtual Task<void> begin(const Background& background) = 0;
};

}  // namespace detail

struct ServerOptions {
  // ---- Where the server listens and runs
  // Address to listen at: "host:port", "unix:/path", or "unix:@name" in the abstract namespace, which has no file. Port
  // 0 selects a free port; Server::address() returns it. "fd:3" or "fd:3,4": these descriptors of this process are
  // listening TCP or Unix sockets, from a service manager (hawser/service_manager.h) or from the server before this one
  // (hawser/handover.h). The server owns them from run() or start() on. It does not remove files of such Unix sockets.
  std::string listen = "127.0.0.1:0";
  unsigned threads = 1;   // Number of loops, each with its own thread. Connections are distributed over them.
  LoopOptions loop = {};  // Options of each loop.
  // Processors to which the loops are pinned, in turn. Empty: not pinned.
  std::vector<int> cpus = {};
  // While the server serves, the machine's processors do not enter sleep states with a longer exit latency (0: any
  // sleep state). This shortens the wake-ups of Wait::spin and Wait::event. The server needs permission to write
  // /dev/cpu_dma_latency and does not start without it. Absent: sleep states are not restricted.
  std::optional<std::chrono::microseconds> cpu_latency_max = {};

  // ---- Bounds: connections, calls and messages that exceed one are refused with an error that names the bound
  std::size_t connections_max = 65'536;  // Open at the same time. The process needs as many descriptors.
  // In flight at the same time. Announced to the client, which obeys it. Raise it for proxies of many clients.
  std::size_t calls_per_connection_max = 4096;
  // In flight at the same time on the whole server. Lower it to refuse calls while the first ones are still fast.
  std::size_t calls_max = 1'000'000;
  std::size_t message_bytes_max = std::size_t{64} << 20;      // One request or reply with its attachment.
  std::size_t send_backlog_bytes_max = std::size_t{8} << 20;  // A connection with more unsent replies is not read.

  // ---- Memory of received data, and peers that send slowly
  // Memory of each loop for received data: messages that have not arrived completely, arguments beyond a few KiB while
  // they are decoded, requests of calls that coroutines and other threads answer, stream items that are not read yet.
  // A request that does not fit is refused with `overloaded`. Bodies that are converted, and requests of Redis clients,
  // wait for memory instead (decisions 72 and 74). A stream item that does not fit ends the streams of its call with
  // `limit_exceeded`. The minimum is message_bytes_max; one message of that size always fits. The first 4 KiB of each
  // connection are granted even if other connections have used up the memory. The 256 KiB blocks that connections are
  // receiving into are not counted.
  std::size_t receive_bytes_max = std::size_t{1} << 30;
  // Part of receive_bytes_max that one connection may use. 0: a quarter. Otherwise at least message_bytes_max and at
  // most receive_bytes_max.
  std::size_t receive_share_bytes_max = 0;
  // Part of receive_bytes_max that all connections of one peer may use together. A peer is one IPv4 address, one IPv6
  // /64 network, or one process at a Unix socket. 0: half. Otherwise at least receive_share_bytes_max and
  // message_bytes_max, and at most receive_bytes_max. Raise it when one address stands for many clients, as a proxy
  // does.
  std::size_t receive_peer_bytes_max = 0;
  // A connection ends when a message that has begun advances by less than receive_rate_min bytes per second, measured
  // over receive_window. While more than half of receive_bytes_max is used, the same rate applies to the replies that
  // wait for a client whose connection keeps memory. Rate 0 or window `forever`: the rate is not checked. A window is
  // at least 1 ms.
  std::size_t receive_rate_min = std::size_t{64} << 10;
  Duration receive_window = std::chrono::seconds(10);

  // ---- Each connection
  // Connections per loop that have not completed their HELLO. One more replaces the oldest silent one.
  std::size_t handshakes_max = 4096;
  // Credit granted to the sender of each stream. At least 1. Raise it when a stream is slower than its path: it carries
  // one window per round trip at most.
  std::uint32_t stream_window_bytes = 256 * 1024;
  // Limits for the values of a received request or stream item: depth of nesting, memory, collisions in hash
  // containers.
  codec::DecodeLimits decode_limits = {};
  // From accepting the byte stream to the end of the HELLO. Connections of a server with other protocols may be silent
  // for their idle_timeout before the first byte, with which this time begins then.
  Duration handshake_timeout = std::chrono::seconds(5);
  // A peer that sends nothing for this time receives a PING. The connection ends if the peer stays silent for the same
  // time again. Lower it to detect lost hosts sooner; each idle connection then costs more PINGs.
  Duration ping_interval = std::chrono::seconds(15);
  bool checksum = true;  // Offers CRC32C, which is used if the client requests it.
  // Sends the text of an exception that leaves a handler to the caller. Otherwise the caller learns that the handler
  // threw, and the text, which may contain what callers should not know, is in the log only.
  bool exception_texts = false;
  bool describe = true;  // Serves the names and the descriptions of the methods (hawser/schema.h).

  // ---- Transports, security, shared resources
  // Transports that are used in addition to the byte stream, in the order of TransportOptions::order.
  TransportOptions transports = {};
  // Owns the resources that this server shares with others. Null: the runtime of its loops (LoopOptions::runtime).
  std::shared_ptr<Runtime> runtime = {};
  // Protects connections: a TlsServer (hawser/tls.h). Null: plain text only.
  std::shared_ptr<transport::ServerSecurity> security = {};
};

// Serves calls. Register handlers, then call run() or start(). stop() ends both.
class Server {
 public:
  // The server creates ServerOptions::threads loops.
  explicit Server(ServerOptions options = {});
  // The server uses the caller's loop, which the caller must run. The options `threads` and `loop` are not used.
  Server(Loop& loop, ServerOptions options = {});
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // Stops at once and waits for offloaded functions that are running. A handler of the server, or a callback of a token
  // that it stops, must not destroy it: that ends the process with a message. In a child process made by fork()
  // after the server started, the destructor and stop() do nothing: the server belongs to the parent process. A program
  // calls daemon() before start(): the parent's threads do not run in the child, and nothing is served after the parent
  // has ended. stop(), counters(), loops() and a daemon's destructor end the process with a message then.
  ~Server();

  // Registers functions under their names. Plain functions run on the loop and must not block; coroutines that return
  // Task<T> may wait. A handler may begin with a Context& parameter and end with Reader<T> and Writer<T> parameters. It
  // may return T or Result<T>.
  // Views among the arguments stay valid until the handler has returned. A view that a handler returns must stay valid
  // until it has been sent; views of the arguments do. Call this before run() or start() only. A second function with
  // the same name or name hash is a std::logic_error. Overloads: see method_name_override.
  template <auto... functions>
    requires(sizeof...(functions) > 0)
  void register_handler(HandlerOptions options = {}) {
    if constexpr (detail::require_no_members<functions...>()) add<void, functions...>(nullptr, options);
  }
  // Registers member functions. They are called on `object`, which must outlive the server.
  template <auto... functions, class Object>
    requires(sizeof...(functions) > 0 && (function_traits<functions>::is_member && ...))
  void register_handler(Object* object, HandlerOptions options = {}) {
    add<Object, functions...>(object, options);
  }
  template <detail::WrongFunction... functions, class... Given>
    requires(functions.wrong || ...)
  void register_handler(Given&&...) = delete;

  // Registers a service that protoc-gen-hawser generated, by the rules of register_handler(); see docs/services.md.
  template <class Service>
  void add_service(Service* service, HandlerOptions options = {}) {
    Service::hawser_register(*this, service, options);
  }

  // Runs background work on one of the server's loops: the loop of the calling thread, otherwise each loop in turn.
  // `work` is a Task<void>, or a function object that takes no parameter or a Background and returns a Task<void>. The
  // function object is called on the loop and lives as long as its task.
  // Work that is spawned before the server starts begins when the server starts. stop() waits for it as it waits for
  // calls. An exception that leaves the work is logged. Any thread. Fails with `unavailable` after a stop has begun.
  // Work that reaches its loop after a stop has begun does not start.
  template <class Work>
  Result<void> spawn(Work work) {
    struct Holder final : detail::BackgroundWork {
      explicit Holder(Work&& given) : held(std::move(given)) {}
      Task<void> begin([[maybe_unused]] const Background& background) override {
        if constexpr (std::is_same_v<Work, Task<void>>) {
          return std::move(held);
        } else if constexpr (std::is_invocable_r_v<Task<void>, Work&, Background>) {
          return held(background);
        } else {
          static_assert(std::is_invocable_r_v<Task<void>, Work&>,
                        "hawser: Server::spawn() takes a Task<void>, or a function object that gives one and has no "
                        "parameter or a hawser::Background");
          return held();
        }
      }
      Work held;
    };
    return spawn_work(std::make_unique<Holder>(std::move(work)));
  }
  // The loops between start() and the return of stop(); empty before and after. Loop::post() reaches them from any
  // thread.
  std::vector<Loop*> loops() const;

  // Uses a transport, such as hawser::rdma({...}), with clients that offer it. Replaces a transport of the same name.
  // Call it before run() or start(). Shorthand for TransportOptions::enable().
  void enable(TransportSpec transport);
  void enable_rdma(RdmaOptions options = {}) { enable(rdma(std::move(options))); }
  void enable_ucx(UcxOptions options = {}) { enable(ucx(std::move(options))); }
  void enable_shm(ShmOptions options = {}) { enable(shm(options)); }

  // Speaks a protocol of another system on the server's port beside the library's own, such as hawser::http({...}). The
  // first bytes of a connection decide. Replaces a protocol of the same name. Call it before run() or start().
  void enable(ProtocolSpec protocol);

  // Runs `interceptor` around each call of every protocol, from before the handler until the call is answered. The
  // first interceptor is the outermost. It is a function object that lives as long as the server and is called as
  //   Task<Result<void>> interceptor(IncomingCall& call, Next next);
  // Include hawser/interceptor.h for these types; docs/interceptors.md. The loops of the server call it at the same
  // time. Call use() before run() or start().
  template <class F>
  void use(F interceptor) {
    add_interceptor(std::make_shared<detail::FunctionInterceptor<IncomingCall, F>>(std::move(interceptor)));
  }

  // Listens and serves until stop(). Fails if the server cannot listen at the address. Returns at once if stop() was
  // called before. Not available for a server on the caller's loop.
  Result<void> run();
  // Listens and serves in the background. Fails with `cancelled` if stop() was called before.
  Result<void> start();
  // Stops the server gracefully. The server accepts no new connections or calls and sends GOAWAY. Calls in flight and
  // background work may finish within `grace`; after that they are cancelled. Context::stopping() and
  // Background::stopping are stopped at the beginning. A connection without calls on which nothing moves ends after
  // one second, if its client does not answer the GOAWAY. So does a fresh one; a request on it is refused.
  // Any thread, at any time, also before run() and during start(). stop() returns when the server has ended. Called by
  // a handler on the server's loops, it returns at once, and run() or a later stop() waits for the end. Called by an
  // offloaded handler, it throws std::logic_error. If several calls give a grace, the shortest applies. For a server on
  // the caller's loop, use shut_down().
  void stop(Duration grace = std::chrono::seconds(5));
  // Stops a server on the caller's loop, as stop() does. If a handler of the server awaits it, that handler is ended
  // after `grace`; `forever` throws std::logic_error then.
  Task<void> shut_down(Duration grace = std::chrono::seconds(5));

  // Address at which the server listens, with the selected port. Valid after start().
  std::string address() const;
  // The current counters. Any thread.
  ServerCounters counters() const;

  // For the library: the transports that the options enable, without the byte stream.
  std::vector<std::shared_ptr<transport::Transport>> transports() const;
  // For the library: the memory that is exposed to the clients.
  std::shared_ptr<detail::RegionTable> regions() const;
  // For components of the library: registers a method. The rules are those of register_handler().
  void add_method(detail::ServedMethod method);

 private:
  template <auto F, class Object>
  void add_function(Object* object, const HandlerOptions& options) {
    using Facts = detail::MethodFacts<F>;
    add_method({.id = Facts::id,
                .signature = Facts::signature,
                .name = std::string(Facts::name),
                .handler = std::make_unique<detail::FunctionHandler<F, Object>>(object, options),
                .streams_in = !std::is_same_v<typename Facts::incoming, detail::NoStream>,
                .streams_out = !std::is_same_v<typename Facts::outgoing, detail::NoStream>,
                .describe = &detail::describe_method<F>});
  }
  template <class Object, auto... functions>
  void add(Object* object, const HandlerOptions& options) {
    (static_cast<void>(detail::check_handler<functions>()), ...);
    if constexpr ((detail::HandlerRules<function_traits<functions>>::sound && ...)) {
      static_assert(detail::names_differ<functions...>(),
                    "hawser: two of these handlers have the same name on the wire, as instantiations of one function "
                    "template or overloads have: give them names of their own by hawser::method_name_override");
      (add_function<functions>(object, options), ...);
    }
  }
  friend struct rpc::Inspector;
  Server(Loop* loop, std::shared_ptr<transport::Network> network, ServerOptions options);
  void add_interceptor(std::shared_ptr<detail::Interceptor<IncomingCall>> interceptor);
  Result<void> spawn_work(std::unique_ptr<detail::BackgroundWork> work);

  struct State;
  detail::StateOwner<State> state_;
};

}  // namespace hawser
