#pragma once

#include <chrono>
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
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/task.h"
#include "hawser/transports.h"

namespace hawser {

namespace transport {
class Transport;
class Network;
}  // namespace transport

// When background work of a server ends; see Server::spawn(). Stops are requested on the loop's thread.
struct Background {
  // A stop has begun: the work should end within its grace.
  std::stop_token stopping;
  // The grace is over. Work that has not ended a second later, or a grace later if that is less, is destroyed.
  std::stop_token token;
};

namespace detail {

// Background work before it begins, and what its task refers to.
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
  // host:port, where port 0 takes a free one, see Server::address(); or a Unix socket: unix:/path, or unix:@name in the
  // abstract namespace, which has no file.
  std::string listen = "127.0.0.1:0";
  unsigned threads = 1;   // Loops, each with its thread; connections are spread over them.
  LoopOptions loop = {};  // Of each loop.
  // Processors to pin the loops to, in turn. Empty: not pinned.
  std::vector<int> cpus = {};
  // While the server serves, keeps the machine's processors out of sleep states that take longer to leave (0: out of
  // all), which shortens what Wait::spin and Wait::event take to wake up. Needs the right to write
  // /dev/cpu_dma_latency; without it the server does not start. Absent: nothing is held.
  std::optional<std::chrono::microseconds> cpu_latency_max = {};

  // Bounds. What passes one is refused with an error that names it.
  std::size_t connections_max = 65'536;                   // At once.
  std::size_t calls_per_connection_max = 4096;            // In flight at once; announced to the client, which obeys.
  std::size_t calls_max = 1'000'000;                      // In flight at once on the whole server.
  std::size_t message_bytes_max = std::size_t{64} << 20;  // One request or reply with its attachment.
  std::size_t send_backlog_bytes_max = std::size_t{8} << 20;  // Unsent replies of a connection before it is not read.
  // Memory of each loop for what its connections receive and keep: messages that have not come whole, arguments beyond
  // a few KiB while they are decoded, requests of calls that coroutines and other threads answer, items of streams that
  // are not read yet. A request that does not fit is refused with `overloaded`; a stream item ends its
  // call's streams with `limit_exceeded`. At least message_bytes_max; one message of that size always
  // fits. The first 4 KiB of each connection are not refused for what others use. Blocks of 256 KiB that connections
  // receive into at the moment are not counted.
  std::size_t receive_bytes_max = std::size_t{1} << 30;
  // Of these, for one connection. 0: a quarter. At least message_bytes_max, and at most receive_bytes_max, if it is
  // given.
  std::size_t receive_share_bytes_max = 0;
  // Of these, for all connections of one peer together: of one IPv4 address, one IPv6 network of 64 bits, or one
  // process at a Unix socket. 0: half. At least receive_share_bytes_max and message_bytes_max if it is given, at most
  // receive_bytes_max. Raise it when one address stands for many clients, as a proxy does.
  std::size_t receive_peer_bytes_max = 0;
  // A connection ends when a message that has begun advances by less than receive_rate_min bytes a second, measured
  // over receive_window; while more than half of receive_bytes_max is used, also when the replies that wait for its
  // client are taken more slowly and it keeps memory. Rate 0 or window `forever`: it never does. Windows are 1 ms or
  // longer.
  std::size_t receive_rate_min = std::size_t{64} << 10;
  Duration receive_window = std::chrono::seconds(10);
  // Connections that have not completed their hello, on each loop. One more takes the place of the oldest silent one.
  std::size_t handshakes_max = 1024;
  std::uint32_t stream_window_bytes = 256 * 1024;  // Granted to the sender of each stream. At least 1.
  // Of the values in a received request or stream item: how deeply they nest, what memory they take, how hash
  // containers are filled.
  codec::DecodeLimits decode_limits = {};
  Duration handshake_timeout = std::chrono::seconds(5);  // From accepting to the end of the hello.
  // A connection without a sign of life for so long is asked (ping), and ended when it stays silent as long again.
  Duration ping_interval = std::chrono::seconds(15);
  bool checksum = true;  // Offer CRC32C; used if the client asks for it.
  // Offered beside the stream, in the order of TransportOptions::order.
  TransportOptions transports = {};
  // Owns what this server shares with others. Null: that of its loops (LoopOptions::runtime).
  std::shared_ptr<Runtime> runtime = {};
};

// Counts since the start, over all loops. For tests and monitoring; each figure is right, together they may be off by
// what happens meanwhile.
struct ServerCounters {
  std::uint64_t connections_accepted = 0;
  std::uint64_t connections_open = 0;
  std::uint64_t connections_refused = 0;
  std::uint64_t handshakes_failed = 0;
  std::uint64_t calls = 0;
  std::uint64_t calls_in_flight = 0;
  std::uint64_t calls_refused = 0;  // Overloaded, unknown method, wrong signature.
  std::uint64_t protocol_errors = 0;
  std::uint64_t memory_refusals =
      0;  // Requests and stream items that receive_bytes_max or a connection's share had no room for.
  std::uint64_t slow_peers = 0;           // Connections ended by receive_rate_min, for what they sent or took.
  std::uint64_t receive_bytes = 0;        // Used now of receive_bytes_max, over all loops.
  std::uint64_t transports_declined = 0;  // Transports that a client offered and that did not carry its connection.
};

// Serves calls. Register handlers, then run() or start(); stop() ends both.
class Server {
 public:
  // With `threads` loops of its own.
  explicit Server(ServerOptions options = {});
  // On the caller's loop, which must be run by the caller; `threads` and `loop` of the options are not used.
  Server(Loop& loop, ServerOptions options = {});
  // For tests: over another network.
  Server(Loop& loop, std::shared_ptr<transport::Network> network, ServerOptions options);
  Server(std::shared_ptr<transport::Network> network, ServerOptions options);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // Stops at once. Not for its own handlers, which it would end: the process is ended with a text. Waits for offloaded
  // functions at work. In a child, by fork(), of the process that started the server, this and stop() do nothing: the
  // server is the parent's.
  ~Server();

  // Registers functions under their names: plain ones run on the loop and must not block; coroutines returning Task<T>
  // may wait. Optional parameters: a leading Context&, trailing Reader<T> and Writer<T>. They may return T or
  // Result<T>. Views among the arguments stay valid until the handler has returned; a view that is returned must stay
  // valid until it is sent, which views of the arguments do. Before run() or start() only; a second function of the
  // same name (or name hash) is a std::logic_error. An overloaded function needs a cast that says which one is meant,
  // and then a name: see method_name_override.
  template <auto... functions>
    requires(sizeof...(functions) > 0 && (!function_traits<functions>::is_member && ...))
  void register_handler(HandlerOptions options = {}) {
    static_assert(detail::names_differ<functions...>(),
                  "hawser: two of these handlers have the same name on the wire, as instantiations of one function "
                  "template or overloads have: give them names of their own by hawser::method_name_override");
    (add_handler(MethodKey::of<functions>(),
                 std::make_unique<detail::FunctionHandler<functions, void>>(nullptr, options)),
     ...);
  }
  // Member functions, called on `object`, which outlives the server.
  template <auto... functions, class Object>
    requires(sizeof...(functions) > 0 && (function_traits<functions>::is_member && ...))
  void register_handler(Object* object, HandlerOptions options = {}) {
    static_assert(detail::names_differ<functions...>(),
                  "hawser: two of these handlers have the same name on the wire, as instantiations of one function "
                  "template or overloads have: give them names of their own by hawser::method_name_override");
    (add_handler(MethodKey::of<functions>(),
                 std::make_unique<detail::FunctionHandler<functions, Object>>(object, options)),
     ...);
  }

  // Runs background work on one of the server's loops: that of the calling thread, else each in turn. `work` is a
  // Task<void>, or is called on the loop, without arguments or with a Background, and gives a Task<void>; it lives as
  // long as its task. Work that is spawned before the server starts begins when it does. stop() waits for it as for
  // calls. An exception that leaves it is logged. Any thread; `unavailable` once a stop has begun. Work that arrives at
  // its loop after that does not begin.
  //   server.spawn([&](hawser::Background background) -> hawser::Task<void> { ... });
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
  // The loops, from start() until stop() returns; empty before and after. Loop::post() reaches them from any thread.
  std::vector<Loop*> loops() const;

  // Uses a transport, such as hawser::rdma({...}), with clients that offer it. Replaces the one of the same name.
  // Before run() or start(). Short for TransportOptions::enable().
  void enable(TransportSpec transport);
  void enable_rdma(RdmaOptions options = {}) { enable(rdma(std::move(options))); }
  void enable_ucx(UcxOptions options = {}) { enable(ucx(std::move(options))); }
  void enable_shm(ShmOptions options = {}) { enable(shm(options)); }

  // Listens and serves until stop(); fails if the address can't be had. Returns at once if stop() was called before.
  // Not for a server on the caller's loop.
  Result<void> run();
  // Listens and serves in the background. Fails with `cancelled` if stop() was called before.
  Result<void> start();
  // Stops: no new connections or calls (goaway), calls in flight and background work may finish within `grace`, then
  // they are cancelled. Context::stopping() and Background::stopping notify them at the start.
  // Connections without a call whose client does not answer goaway are ended after a second. Any thread, at any time,
  // also before run() and during start(); returns when all is done. Called by a handler on the server's loops it
  // returns at once, and run() or a later stop() waits for the end; an offloaded handler gets a std::logic_error. Of
  // several graces the shortest counts. For a server on the caller's loop use shut_down().
  void stop(Duration grace = std::chrono::seconds(5));
  // The same for a server on the caller's loop. Awaited by a handler of the server it ends that handler after `grace`;
  // with `forever` it throws std::logic_error.
  Task<void> shut_down(Duration grace = std::chrono::seconds(5));

  // Where it listens, with the port that was taken; valid after start().
  std::string address() const;
  ServerCounters counters() const;

  // For the library: the transports beside the stream that the options enable.
  std::vector<std::shared_ptr<transport::Transport>> transports() const;

 private:
  struct MethodKey {
    std::uint32_t id;
    std::uint32_t signature;
    std::string_view name;
    template <auto F>
    static constexpr MethodKey of() {
      return {detail::MethodFacts<F>::id, detail::MethodFacts<F>::signature, detail::MethodFacts<F>::name};
    }
  };
  void add_handler(MethodKey key, std::unique_ptr<detail::Handler> handler);
  Result<void> spawn_work(std::unique_ptr<detail::BackgroundWork> work);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hawser
