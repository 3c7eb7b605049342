#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/transport/stream.h"
#include "transport/common/link_facts.h"
#include "transport/common/socket_source.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_engine.h"

namespace hawser::transport {

// A connected socket. The loop on which it is started determines how its bytes are sent and received.
class TcpStream final : public Stream, public LinkFactsSource, public SocketSource {
 public:
  explicit TcpStream(Descriptor socket);

  void start(Loop& loop, StreamSink& sink) override;
  void set_sink(StreamSink& sink) noexcept override { engine_->set_sink(sink); }
  std::size_t send(std::span<const ConstBuffer> pieces) override { return engine_->send(pieces); }
  void pause() noexcept override { engine_->pause(); }
  void resume() override { engine_->resume(); }
  bool reports_every_receive() const noexcept override { return true; }
  void finish() noexcept override;
  std::string_view transport() const noexcept override { return transport_; }
  std::string peer() const override { return peer_; }
  std::string local() const override { return local_of(socket_.get()); }
  std::shared_ptr<const Identity> identity() const override { return unix_peer_of(socket_.get()); }
  std::optional<LinkFacts> link_facts() const noexcept override;
  int tcp_socket() const noexcept override { return transport_ == "tcp" ? socket_.get() : -1; }

 private:
  Descriptor socket_;
  std::string_view transport_;         // "tcp" or "unix".
  std::string peer_;                   // Kept because a broken socket does not know it any more.
  std::unique_ptr<TcpEngine> engine_;  // Exists from start() on. Destroyed before the socket.
};

}  // namespace hawser::transport
