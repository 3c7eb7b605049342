#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "hawser/loop.h"
#include "hawser/transport/stream.h"

namespace hawser::transport {

// Two connected streams, on one loop or on two loops in two threads. They use Loop::post() only and nothing of the
// operating system. The number of bytes on their way is bounded, so that a send may accept only a part. Both loops must
// outlive the streams and everything that was posted.
class LoopStream final : public Stream {
 public:
  static constexpr std::size_t waiting_bytes_max = 256 * 1024;

  static std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> make_pair() {
    auto a = std::make_shared<End>();
    auto b = std::make_shared<End>();
    a->peer = b;
    b->peer = a;
    return {std::make_unique<LoopStream>(a, b), std::make_unique<LoopStream>(b, a)};
  }

  struct End {
    std::mutex mutex;      // Guards the members below, except `paused` and `notified`, which only the loop uses.
    Loop* loop = nullptr;  // Null until started, and after the end of this stream.
    StreamSink* sink = nullptr;
    std::string waiting;  // Received and not delivered.
    bool finished = false;
    bool short_of_room = false;  // The peer waits for sendable().
    std::weak_ptr<End> peer;
    bool paused = false;
    bool notified = false;

    void poll_soon(const std::shared_ptr<End>& self) {
      if (loop != nullptr) loop->post([self] { self->deliver(); });
    }
    void deliver() {
      for (;;) {
        std::unique_lock lock(mutex);
        if (loop == nullptr || paused || notified || (waiting.empty() && !finished)) return;
        const std::string bytes = std::exchange(waiting, {});
        notified = bytes.empty();
        lock.unlock();
        if (notified) {
          return sink->ended(
              Error::of_connection(Initiator::peer, ErrorCode::unavailable, "the peer closed the connection"));
        }
        std::size_t taken = 0;
        while (taken != bytes.size() && loop != nullptr && !paused) {
          const MutableBytes space = sink->receive_space();
          const std::size_t size = std::min(space.size(), bytes.size() - taken);
          std::memcpy(space.data(), bytes.data() + taken, size);
          taken += size;
          sink->received(size);
        }
        lock.lock();
        waiting.insert(0, bytes, taken);
        if (waiting.size() > waiting_bytes_max / 2 || !std::exchange(short_of_room, false)) continue;
        lock.unlock();
        if (const auto sender = peer.lock()) {
          const std::lock_guard other(sender->mutex);
          if (sender->loop != nullptr) {
            sender->loop->post([sender] {
              if (sender->loop != nullptr && !sender->notified) sender->sink->sendable(0);
            });
          }
        }
      }
    }
  };

  LoopStream(std::shared_ptr<End> own, std::shared_ptr<End> peer) : own_(std::move(own)), peer_(std::move(peer)) {}
  ~LoopStream() override {
    finish();
    const std::lock_guard lock(own_->mutex);
    own_->loop = nullptr;
  }

  void start(Loop& loop, StreamSink& sink) override {
    const std::lock_guard lock(own_->mutex);
    own_->loop = &loop;
    own_->sink = &sink;
    own_->poll_soon(own_);
  }
  void set_sink(StreamSink& sink) noexcept override { own_->sink = &sink; }
  std::size_t send(std::span<const ConstBuffer> pieces) override {
    const std::lock_guard lock(peer_->mutex);
    std::size_t size = 0;
    for (const ConstBuffer& piece : pieces) {
      const std::size_t part =
          std::min(piece.size, waiting_bytes_max - std::min(waiting_bytes_max, peer_->waiting.size()));
      peer_->waiting.append(reinterpret_cast<const char*>(piece.data), part);
      size += part;
      peer_->short_of_room |= part != piece.size;
    }
    peer_->poll_soon(peer_);
    return size;
  }
  void pause() noexcept override { own_->paused = true; }
  void resume() override {
    own_->paused = false;
    const std::lock_guard lock(own_->mutex);
    own_->poll_soon(own_);
  }
  void finish() noexcept override {
    const std::lock_guard lock(peer_->mutex);
    peer_->finished = true;
    peer_->poll_soon(peer_);
  }
  std::string_view transport() const noexcept override { return "loop"; }
  std::string peer() const override { return "peer:1"; }
  std::string local() const override { return "local:2"; }

 private:
  std::shared_ptr<End> own_;
  std::shared_ptr<End> peer_;
};

}  // namespace hawser::transport
