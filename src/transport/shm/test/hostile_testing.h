#pragma once

#include <cstring>
#include <memory>
#include <optional>

#include "base/random.h"
#include "transport/conformance/path_testing.h"
#include "transport/shm/handshake.h"
#include "transport/shm/meeting.h"
#include "transport/shm/memory/shared_memory.h"
#include "transport/shm/peer.h"
#include "transport/shm/shm_path.h"

namespace hawser::transport::shm {

// A server's half of a connection, whose client holds the shared memory and writes there what it likes.
class HostileClient {
 public:
  explicit HostileClient(const ShmOptions& options = {}, std::size_t message_bytes_max = std::size_t{1} << 20,
                         OwnProcess own = OwnProcess::read)
      : path_(make_shm_path(options, own)), loop({.log = no_log()}, false) {
    loop.on([&] {
      end_ = *path_->attach(loop.loop());
      half_ = *end_->propose(end_->offer(), {message_bytes_max, message_bytes_max});
      proposal = *decode_proposal(half_->parameters());
      memory = *SharedMemory::create({proposal.ring_bytes, proposal.slab_bytes}, false);
    });
  }
  ~HostileClient() {
    loop.on([&] {
      connection.reset();
      half_.reset();
      end_.reset();
      stream_.reset();
    });
  }

  // Says that it has come to the server's socket.
  Result<void> answer_only() {
    return loop.on([&] { return half_->connect(encode(Answer{})); });
  }
  Result<void> answer() {
    bell.emplace(std::move(*meet(proposal.socket, proposal.secret, memory->fd())));
    return answer_only();
  }
  void open() {
    auto streams = LoopStream::make_pair();
    stream_ = std::move(streams.second);
    loop.on([&] {
      streams.first->start(loop.loop(), quiet_);
      streams.first->pause();
      connection = half_->open(std::move(streams.first));
      connection->start(sink);
      sink.record = false;
    });
  }
  // Lets the server look at what was written.
  void turns(int count = 3) {
    for (int i = 0; i < count; ++i) loop.on([] {});
    loop.rest(std::chrono::microseconds(1));
  }

  Control& control() { return memory->control(); }
  std::byte* ring() { return memory->ring(client_side); }
  // Makes the ring's first `bytes` bytes known to the server.
  void publish(std::uint64_t tail) { control().rings[client_side].tail.store(tail); }
  void put(std::size_t at, const Record& record) { std::memcpy(ring() + at, &record, sizeof record); }

 private:
  struct Quiet final : StreamSink {
    MutableBytes receive_space() override { return space; }
    void received(std::size_t) override {}
    void sendable(std::size_t) override {}
    void ended(const Error&) override {}
    std::array<std::byte, 16> space{};
  };

  const std::shared_ptr<DataPath> path_;
  std::shared_ptr<PathEnd> end_;
  std::unique_ptr<PathHalf> half_;
  std::unique_ptr<Stream> stream_;
  Quiet quiet_;

 public:
  TestLoop loop;
  Proposal proposal;
  std::shared_ptr<SharedMemory> memory;
  std::optional<Doorbell> bell;
  PathSink sink;
  std::unique_ptr<Connection> connection;
};

}  // namespace hawser::transport::shm
