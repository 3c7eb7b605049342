#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "hawser/loop.h"
#include "hawser/shm_options.h"
#include "hawser/transport/connection.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/transport.h"
#include "transport/common/backlog_watermark.h"
#include "transport/common/liveness.h"
#include "transport/shm/receiver.h"
#include "transport/shm/sender.h"

namespace hawser::transport::shm {

// What the two halves of a connection have agreed on, and what each holds.
struct Link {
  std::size_t side = server_side;  // Ours.
  std::shared_ptr<SharedMemory> memory;
  Doorbell bell;
  std::shared_ptr<const PeerProcess> peer;  // Null unless its memory may be read.
  std::shared_ptr<Helpers> helpers;
  ShmOptions options;  // Both sides' in one.
  MessageLimits limits;
  std::shared_ptr<void> worker;  // The path's end on this loop, and our place among its connections.
};

// Messages through shared memory. Looks for them as long as the loop spins and they come often; else the peer rings.
class ShmConnection final : public Connection, exec::Source, exec::Watcher, exec::TickEnd {
 public:
  ShmConnection(Loop& loop, Link link, std::unique_ptr<Stream> stream);
  ~ShmConnection() override;

  std::string_view transport() const noexcept override { return "shm"; }
  Capabilities capabilities() const noexcept override;
  std::string peer() const override { return liveness_.peer(); }

  void start(MessageSink& sink) override;
  std::byte* reserve(std::size_t head_bytes) override {
    if (gate_.ended || closing_ || !mark_.is_ours()) [[unlikely]]
      return nullptr;
    return sender_.reserve(head_bytes);
  }
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) override;
  void copy_and_release(SendCompletion& owner) override { sender_.copy_and_release(owner); }
  void revoke_receive_buffer(const std::byte* memory) noexcept override { receiver_.revoke_receive_buffer(memory); }
  std::uint64_t committed() const noexcept override { return sender_.committed(); }
  std::uint64_t sent() const noexcept override { return sender_.sent(); }
  std::uint64_t arrived() const noexcept override { return receiver_.arrived(); }
  std::size_t backlog() const noexcept override { return sender_.backlog(); }
  void set_high_watermark(std::size_t bytes) noexcept override { watermark_.set(bytes, backlog()); }
  void pause() noexcept override { gate_.paused = true; }
  void resume() override;
  bool paused() const noexcept override { return gate_.paused; }
  void flush() override;
  void close() override;
  void abort() noexcept override;

 private:
  // Fruitless looks after which a connection waits for the peer to ring.
  static constexpr unsigned idle_polls_max = 4096;
  static constexpr unsigned idle_polls_event_max = 16;  // With Wait::event.

  bool poll() override;
  bool arm() override;
  void on_ready(exec::Readiness readiness) override;
  void on_tick_end() override { flush(); }

  bool poll_once();
  bool has_work() noexcept;
  void unwatch_bell() noexcept;
  void set_hot(bool hot);
  void drained();
  void fail(const Error& reason);

  Loop& loop_;
  Link link_;
  const ProcessMark& mark_;  // In a child of the process, everything here does nothing.
  Sleeper sleeper_;
  PeerWaker waker_;
  Gate gate_;
  Sender sender_;
  Receiver receiver_;
  std::optional<Error> peer_gone_;  // The stream has ended; what the peer sent before may still lie in the ring.
  BacklogWatermark watermark_;
  bool closing_ = false;
  bool bell_watched_ = false;
  bool hot_ = false;    // Among the loop's sources.
  bool armed_ = false;  // The peer rings when there is something.
  unsigned idle_polls_ = 0;
  Liveness liveness_;  // Last: it calls from its beginning on.
};

}  // namespace hawser::transport::shm
