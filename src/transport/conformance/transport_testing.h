#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "base/try.h"
#include "hawser/loop.h"
#include "hawser/transport/connection.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/transport.h"
#include "transport/conformance/loop_stream_testing.h"
#include "transport/conformance/test_loop_testing.h"
#include "transport/conformance/transport_sink_testing.h"

namespace hawser::transport {

// A transport to be tested and the loops for it. See transport_suite_testing.h.
struct TransportCase {
  std::string name;
  std::function<std::shared_ptr<Transport>()> make;
  std::vector<std::size_t> limits;  // Sizes of payloads at which the transport changes its method.
  bool two_loops = false;           // Each side has a loop in a thread of its own.
  LoopOptions loop = {.log = no_log()};
  std::size_t held_back_bytes_max = std::size_t{32} << 20;  // Most bytes that a transport accepts while its receiver
                                                            // is paused.
  std::string absent = {};             // Reason why the transport is not available; empty if it is.
  std::string keeps_descriptors = {};  // Reason why descriptors outlive their connection; empty if none does.
  // Payloads up to this size may be received into memory that each connection has anyway. It is not charged.
  std::size_t set_aside_bytes = 0;
  bool slow = false;  // Tens of MB/s, such as a device on emulated processors: tests send less.
};

inline void PrintTo(const TransportCase& one, std::ostream* out) { *out << one.name; }
inline std::string name_of_transport_case(const testing::TestParamInfo<TransportCase>& info) { return info.param.name; }

// Returns test cases for `make` on one loop and on two, with each poller, spinning and sleeping.
inline std::vector<TransportCase> transport_cases(const std::string& name,
                                                  const std::function<std::shared_ptr<Transport>()>& make,
                                                  const std::vector<std::size_t>& limits,
                                                  const std::string& absent = {}) {
  std::vector<TransportCase> cases;
  const auto add = [&](const char* how, bool two_loops, PollerKind poller, Wait wait) {
    TransportCase& one = cases.emplace_back();
    one.name = name + "_" + how;
    one.make = make;
    one.limits = limits;
    one.two_loops = two_loops;
    one.absent = absent;
    one.loop.poller = poller;
    one.loop.wait = wait;
  };
  add("one_loop", false, PollerKind::epoll, Wait::spin);
  add("one_loop_io_uring", false, PollerKind::io_uring, Wait::event);
  add("two_loops", true, PollerKind::epoll, Wait::spin);
  add("two_loops_event", true, PollerKind::epoll, Wait::event);
  return cases;
}

// Returns `size` bytes whose pattern depends on `seed`.
inline std::string test_bytes(std::size_t size, std::size_t seed) {
  std::string text(size, '\0');
  std::uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  for (std::size_t i = 0; i < size; ++i) {
    if (i % 8 == 0) state = state * 6364136223846793005U + 1442695040888963407U;
    text[i] = static_cast<char>(state >> (8 * (i % 8)));
  }
  return text;
}

// One end of a connected pair. The objects of its loop are destroyed there.
struct TransportSide {
  std::shared_ptr<TestLoop> loop;
  std::shared_ptr<TransportWorker> worker;
  std::unique_ptr<Connection> connection;
  TransportSink sink;

  TransportSide* other = nullptr;

  // Runs `work` on the loop, from another thread. The other side's loop first synchronises with that thread, because
  // the thread sanitizer sees no order through memory that two ends share at different addresses.
  template <class F>
  auto on(F&& work) {
    if (other != nullptr && other->loop != loop) other->loop->on([] {});
    return loop->on(std::forward<F>(work));
  }
  // Makes a half of the connection: `begin` calls TransportWorker::select() or accept().
  template <class Begin>
  Result<std::unique_ptr<PendingConnection>> half(Begin begin) {
    Result<std::unique_ptr<PendingConnection>> begun = on(begin);
    if (!begun) return begun;
    Result<void> ready =
        loop->finish([&](PendingConnection::Ready notify) { (*begun)->when_ready(std::move(notify)); });
    if (ready) return begun;
    on([&] { begun->reset(); });
    return fail(std::move(ready.error()));
  }
  Result<void> connect(PendingConnection& pending, Bytes peer) {
    publish();
    return loop->finish([&](PendingConnection::Ready notify) { pending.connect(peer, std::move(notify)); });
  }
  // Synchronises both loops with the calling thread.
  void publish() {
    on([] {});
  }
  // Waits until `condition` holds, as seen on the loop. Returns false only after a time that means a hang.
  template <class F>
  bool until(F condition) {
    for (int i = 0; i < 200'000; ++i) {
      if (on(condition)) return true;
      loop->rest();
    }
    return false;
  }
  bool until_received(std::size_t messages) {
    return until([&] { return sink.count.load() >= messages; });
  }
  bool until_closed() {
    return until([&] { return !sink.closed.empty(); });
  }

  // Sends a message; must be called within on(). Returns false if the connection has ended.
  bool send(std::string_view head, std::span<const ConstBuffer> payload = {}, SendCompletion* owner = nullptr) {
    std::byte* const to = connection->reserve(head.size());
    if (to == nullptr) return false;
    std::memcpy(to, head.data(), head.size());
    connection->commit(head.size(), payload, owner);
    return true;
  }
  bool send(std::string_view head, std::string_view payload, SendCompletion* owner = nullptr) {
    const ConstBuffer piece{as_bytes(payload).data(), payload.size()};
    return send(head, std::span(&piece, 1), owner);
  }
};

// A connected pair, and the steps that establish the connection.
class TransportPair {
 public:
  static constexpr std::size_t message_bytes_max = std::size_t{4} << 20;

  explicit TransportPair(const TransportCase& what, MessageLimits limits = {message_bytes_max, message_bytes_max})
      : limits_(limits), transport_(what.make()), client_transport_(what.make()) {
    server.loop = std::make_shared<TestLoop>(what.loop, what.two_loops);
    client.loop = what.two_loops ? std::make_shared<TestLoop>(what.loop, true) : server.loop;
    client.other = &server;
    server.other = &client;
  }
  ~TransportPair() {
    for (TransportSide* side : {&client, &server}) {
      side->on([&] {
        side->connection.reset();
        side->sink.kept.clear();
        side->worker.reset();
      });
    }
    server.on([&] { server_pending.reset(); });
    client.on([&] { client_pending.reset(); });
  }

  Result<void> attach() {
    for (TransportSide* side : {&client, &server}) {
      Result<void> attached = side->on([&]() -> Result<void> {
        TRY(std::shared_ptr<TransportWorker> worker,
            (side == &client ? client_transport_ : transport_)->attach(side->loop->loop()));
        side->worker = std::move(worker);
        return {};
      });
      TRY(attached);
    }
    return {};
  }
  Result<void> select() {
    const std::vector<std::byte> offer = client.on([&] { return client.worker->offer(); });
    return take(server, server_pending, [&] { return server.worker->select(offer, limits_); });
  }
  Result<void> accept() {
    const std::vector<std::byte> parameters = server.on([&] { return server_pending->parameters(); });
    return take(client, client_pending, [&] { return client.worker->accept(parameters, limits_); });
  }
  Result<void> connect() {
    const std::vector<std::byte> parameters = client.on([&] { return client_pending->parameters(); });
    return server.connect(*server_pending, parameters);
  }
  // Each side's connection starts at once, so the client may send before the server has opened its pending connection.
  void open(bool start = true) {
    auto streams = LoopStream::make_pair();
    open_side(client, client_pending, std::move(streams.first), start);
    open_side(server, server_pending, std::move(streams.second), start);
  }
  // Runs all steps. Returns false, with a failed expectation, if a step fails.
  bool establish(bool start = true) {
    for (const auto step :
         {&TransportPair::attach, &TransportPair::select, &TransportPair::accept, &TransportPair::connect}) {
      const Result<void> done = (this->*step)();
      EXPECT_TRUE(done.has_value()) << done.error().describe();
      if (!done) return false;
    }
    open(start);
    return client.connection != nullptr && server.connection != nullptr;
  }

  const MessageLimits& limits() const noexcept { return limits_; }

  TransportSide client;
  TransportSide server;
  std::unique_ptr<PendingConnection> client_pending;
  std::unique_ptr<PendingConnection> server_pending;

 private:
  // Sink of an idle stream until the pending connection takes the stream.
  struct Quiet final : StreamSink {
    MutableBytes receive_space() override { return space; }
    void received(std::size_t) override {}
    void sendable(std::size_t) override {}
    void ended(const Error&) override {}
    std::array<std::byte, 16> space{};
  };

  template <class F>
  Result<void> take(TransportSide& side, std::unique_ptr<PendingConnection>& into, F make) {
    TRY(std::unique_ptr<PendingConnection> pending, side.half(make));
    side.on([&] { into = std::move(pending); });
    return {};
  }
  void open_side(TransportSide& side, std::unique_ptr<PendingConnection>& pending, std::unique_ptr<Stream> stream,
                 bool start) {
    side.on([&] {
      stream->start(side.loop->loop(), quiet_);
      stream->pause();
      side.connection = pending->open(std::move(stream));
      pending.reset();
      side.sink.connection = side.connection.get();
      if (start) side.connection->start(side.sink);
    });
  }

  const MessageLimits limits_;
  const std::shared_ptr<Transport> transport_;
  const std::shared_ptr<Transport> client_transport_;
  Quiet quiet_;
};

// Returns the number of open descriptors of this process, to detect leaks.
inline std::size_t descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

}  // namespace hawser::transport
