#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "hawser/transport/stream.h"
#include "transport/tcp/readiness_engine.h"

namespace hawser::transport {

// A socket of an application, below its TLS if there is any. It is paused at first. What the peer and the system do to
// it is notified also while it is paused, whatever is above it.
class ApplicationSocket final : public Stream {
 public:
  // Throws std::system_error if the system takes no more descriptors. `sink` may be replaced by start().
  ApplicationSocket(Loop& loop, Descriptor socket, StreamSink& sink, ReadinessObserver& observer);

  // The stream belongs to the loop of the constructor.
  void start(Loop&, StreamSink& sink) override { set_sink(sink); }
  void set_sink(StreamSink& sink) noexcept override { engine_.set_sink(sink); }
  std::size_t send(std::span<const ConstBuffer> pieces) override { return engine_.send(pieces); }
  void pause() noexcept override { engine_.pause(); }
  void resume() override { engine_.receive_now(); }
  bool reports_every_receive() const noexcept override { return true; }
  // TLS above it calls it when everything has been accepted.
  void finish() noexcept override;
  std::string_view transport() const noexcept override { return transport_; }
  std::string peer() const override { return peer_; }
  std::string local() const override;
  std::shared_ptr<const Identity> identity() const override;

  // Ends both directions at once.
  void shut_down() noexcept;

 private:
  const Descriptor socket_;
  const std::string_view transport_;  // "tcp" or "unix".
  const std::string peer_;            // Kept because a broken socket does not know it any more.
  ReadinessObserver& observer_;
  ReadinessEngine engine_;
};

}  // namespace hawser::transport
