#include "transport/tcp/tcp_stream.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>

#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "transport/tcp/readiness_engine.h"
#include "transport/tcp/uring_engine.h"

namespace hawser::transport {

TcpStream::TcpStream(Descriptor socket)
    : socket_(std::move(socket)), transport_(is_unix(socket_.get()) ? "unix" : "tcp"), peer_(peer_of(socket_.get())) {
  bound_local_send_buffer(socket_.get());
}

void TcpStream::start(Loop& loop, StreamSink& sink) {
  if (exec::IoUring* const ring = loop.poller().io_uring(); ring != nullptr) {
    engine_ = std::make_unique<UringEngine>(loop, *ring, socket_.get(), sink);
  } else {
    engine_ = std::make_unique<ReadinessEngine>(loop, socket_.get(), sink);
  }
}

std::optional<LinkFacts> TcpStream::link_facts() const noexcept {
  tcp_info info{};  // Fields that an older kernel does not know stay 0.
  socklen_t size = sizeof info;
  if (transport_ != "tcp" || getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  const std::uint64_t congestion = std::uint64_t{info.tcpi_snd_cwnd} * info.tcpi_snd_mss;
  return LinkFacts{
      .round_trip = std::chrono::microseconds(info.tcpi_rtt),
      .retransmissions = info.tcpi_total_retrans,
      .window_bytes = info.tcpi_snd_wnd == 0 ? congestion : std::min<std::uint64_t>(congestion, info.tcpi_snd_wnd)};
}

void TcpStream::finish() noexcept { shutdown(socket_.get(), SHUT_WR); }

}  // namespace hawser::transport
