#pragma once

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "base/random.h"
#include "transport/conformance/transport_testing.h"
#include "transport/shm/handshake.h"
#include "transport/shm/meeting.h"
#include "transport/shm/memory/shared_memory.h"
#include "transport/shm/peer.h"
#include "transport/shm/shm_transport.h"

namespace hawser::transport::shm {

// The server's side of a connection whose client holds the shared memory and writes anything to it.
class HostileClient {
 public:
  explicit HostileClient(const ShmOptions& options = {}, std::size_t message_bytes_max = std::size_t{1} << 20,
                         OwnProcess own = OwnProcess::read)
      : transport_(make_shm_transport(options, own)), loop({.log = no_log()}, false) {
    worker_ = *loop.on([&] { return transport_->attach(loop.loop()); });
    const MessageLimits limits{message_bytes_max, message_bytes_max};
    pending_ = *finish_half(loop.loop(), loop.on([&] { return worker_->select(worker_->offer(), limits); }));
    loop.on([&] {
      selection = *decode_selection(pending_->parameters());
      memory = *SharedMemory::create({selection.ring_bytes, selection.slab_bytes}, false);
    });
  }
  ~HostileClient() {
    loop.on([&] {
      connection.reset();
      pending_.reset();
      worker_.reset();
      stream_.reset();
    });
  }

  // Notifies the server that the client has connected to its socket, without connecting.
  Result<void> answer_only() { return finish_connect(loop.loop(), *pending_, encode(ShmAnswer{})); }
  Result<void> answer() {
    bell.emplace(std::move(*meet(selection.socket, selection.secret, memory->fd())));
    return answer_only();
  }
  void open() {
    open_with(sink);
    loop.on([&] { sink.record = false; });
  }
  // Delivers the server's messages to another sink.
  void open_with(MessageSink& to) {
    auto streams = LoopStream::make_pair();
    stream_ = std::move(streams.second);
    loop.on([&] {
      streams.first->start(loop.loop(), quiet_);
      streams.first->pause();
      connection = pending_->open(std::move(streams.first));
      connection->start(to);
    });
  }
  // Lets the server process what was written.
  void turns(int count = 3) {
    for (int i = 0; i < count; ++i) loop.on([] {});
    loop.rest(std::chrono::microseconds(1));
  }

  // Waits until the server has ended the connection, or `also` holds.
  template <class Condition>
  void turns_until_closed(Condition also) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (sink.closed.empty() && !also() && std::chrono::steady_clock::now() < end) turns();
  }
  void turns_until_closed() {
    turns_until_closed([] { return false; });
  }

  Control& control() { return memory->control(); }
  std::byte* ring() { return memory->ring(client_side); }
  // Publishes the ring's first bytes, up to `tail`, to the server.
  void publish(std::uint64_t tail) { control().rings[client_side].tail.store(tail); }
  void put(std::size_t at, const RingRecord& record) { std::memcpy(ring() + at, &record, sizeof record); }

 private:
  struct Quiet final : StreamSink {
    MutableBytes receive_space() override { return space; }
    void received(std::size_t) override {}
    void sendable(std::size_t) override {}
    void ended(const Error&) override {}
    std::array<std::byte, 16> space{};
  };

  const std::shared_ptr<Transport> transport_;
  std::shared_ptr<TransportWorker> worker_;
  std::unique_ptr<PendingConnection> pending_;
  std::unique_ptr<Stream> stream_;
  Quiet quiet_;

 public:
  TestLoop loop;
  Selection selection;
  std::shared_ptr<SharedMemory> memory;
  std::optional<Doorbell> bell;
  TransportSink sink;
  std::unique_ptr<Connection> connection;
};

}  // namespace hawser::transport::shm
