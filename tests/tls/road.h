#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/alive.h"
#include "exec/sim_poller.h"
#include "hawser/transport/framed.h"
#include "hawser/transport/transport.h"
#include "tests/raw_peer.h"
#include "transport/network.h"
#include "transport/sim/sim_network.h"

// A path beside the stream whose every message passes through the hands of a man in the middle. One loop, virtual time.
namespace hawser::testing_tools {

class RoadStream;

// One path. End 0 is the client's, end 1 the server's.
struct Road {
  std::size_t index = 0;  // In the order in which servers have made them.
  std::array<RoadStream*, 2> ends{};
  std::array<std::vector<Octets>, 2> waiting;  // Messages to an end that is not open yet.
  std::array<std::size_t, 2> sent{};           // Messages that each end has sent.
};

// All roads, and the man in the middle.
struct Roads {
  // Decides what happens to a whole message, with its prefix, from `end` of `road`.
  using Carry = std::function<void(Road& road, std::size_t end, const Octets& message)>;
  Carry carry;
  std::vector<std::unique_ptr<Road>> all;

  static void deliver(Road& road, std::size_t end, const Octets& message);
};

class RoadStream final : public transport::Stream, transport::StreamSink {
 public:
  RoadStream(std::shared_ptr<Roads> roads, Road& road, std::size_t end, std::unique_ptr<transport::Stream> beside)
      : roads_(std::move(roads)), road_(road), end_(end), beside_(std::move(beside)) {}
  ~RoadStream() override { road_.ends[end_] = nullptr; }

  void start(Loop& loop, transport::StreamSink& sink) override {
    loop_ = &loop;
    sink_ = &sink;
    road_.ends[end_] = this;
    beside_->set_sink(*this);
    beside_->resume();
    for (const Octets& message : std::exchange(road_.waiting[end_], {})) deliver(message);
  }
  void set_sink(transport::StreamSink& sink) noexcept override { sink_ = &sink; }
  std::size_t send(std::span<const ConstBuffer> pieces) override {
    std::size_t all = 0;
    for (const ConstBuffer& piece : pieces) {
      outgoing_.insert(outgoing_.end(), piece.data, piece.data + piece.size);
      all += piece.size;
    }
    while (outgoing_.size() >= 8) {
      const std::size_t size =
          8 + std::size_t{load_le<std::uint32_t>(outgoing_.data())} + load_le<std::uint32_t>(outgoing_.data() + 4);
      if (outgoing_.size() < size) break;
      const Octets message = first(outgoing_, size);
      outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(size));
      roads_->carry(road_, end_, message);
      ++road_.sent[end_];
    }
    return all;
  }
  void pause() noexcept override { paused_ = true; }
  void resume() override {
    paused_ = false;
    pump_later();
  }
  void finish() noexcept override {}
  std::string_view transport() const noexcept override { return "road"; }
  std::string peer() const override { return beside_->peer(); }
  std::string local() const override { return beside_->local(); }

  void deliver(const Octets& message) {
    incoming_.insert(incoming_.end(), message.begin(), message.end());
    pump_later();
  }

 private:
  void pump_later() {
    loop_->post([watch = alive_.watch()] {
      if (RoadStream* const self = watch.get()) self->pump();
    });
  }
  void pump() {
    while (!paused_ && !gone_ && !incoming_.empty()) {
      const MutableBytes space = sink_->receive_space();
      const std::size_t size = std::min(space.size(), incoming_.size());
      std::copy(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(size), space.begin());
      incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(size));
      sink_->received(size);
    }
    if (!paused_ && !gone_) sink_->received(0);
  }
  MutableBytes receive_space() override { return MutableBytes(space_); }
  void received(std::size_t) override {}
  void sendable(std::size_t) override {}
  void ended(const Error& reason) override {
    if (!std::exchange(gone_, true)) sink_->ended(reason);
  }

  const std::shared_ptr<Roads> roads_;
  Road& road_;
  const std::size_t end_;
  const std::unique_ptr<transport::Stream> beside_;
  Loop* loop_ = nullptr;
  transport::StreamSink* sink_ = nullptr;
  Octets outgoing_;
  Octets incoming_;
  bool paused_ = false;
  bool gone_ = false;
  std::array<std::byte, 16> space_{};
  const Alive<RoadStream> alive_{*this};
};

inline void Roads::deliver(Road& road, std::size_t end, const Octets& message) {
  if (road.ends[end] != nullptr) return road.ends[end]->deliver(message);
  road.waiting[end].push_back(message);
}

class RoadPending final : public transport::PendingConnection {
 public:
  RoadPending(Loop& loop, std::shared_ptr<Roads> roads, Road& road, std::size_t end,
              const transport::MessageLimits& limits)
      : loop_(loop), roads_(std::move(roads)), road_(road), end_(end), limits_(limits) {}
  std::vector<std::byte> parameters() const override { return octets("road " + std::to_string(road_.index)); }
  void connect(Bytes, Ready ready) override { ready({}); }
  std::unique_ptr<transport::Connection> open(std::unique_ptr<transport::Stream> stream) override {
    return make_framed_connection(loop_, std::make_unique<RoadStream>(roads_, road_, end_, std::move(stream)), limits_);
  }

 private:
  Loop& loop_;
  const std::shared_ptr<Roads> roads_;
  Road& road_;
  const std::size_t end_;
  const transport::MessageLimits limits_;
};

class RoadTransport final : public transport::Transport {
 public:
  explicit RoadTransport(std::shared_ptr<Roads> roads) : roads_(std::move(roads)) {}
  std::string_view name() const noexcept override { return "road"; }
  Result<std::shared_ptr<transport::TransportWorker>> attach(Loop& loop) override {
    return std::make_shared<Worker>(loop, roads_);
  }

 private:
  struct Worker final : transport::TransportWorker {
    Worker(Loop& on, std::shared_ptr<Roads> of) : loop(on), roads(std::move(of)) {}
    std::vector<std::byte> offer() override { return octets("a road"); }
    Result<std::unique_ptr<transport::PendingConnection>> select(Bytes,
                                                                 const transport::MessageLimits& limits) override {
      roads->all.push_back(std::make_unique<Road>());
      roads->all.back()->index = roads->all.size() - 1;
      return std::make_unique<RoadPending>(loop, roads, *roads->all.back(), 1, limits);
    }
    Result<std::unique_ptr<transport::PendingConnection>> accept(Bytes server,
                                                                 const transport::MessageLimits& limits) override {
      const std::size_t index = std::stoul(std::string(as_text(server).substr(5)));
      return std::make_unique<RoadPending>(loop, roads, *roads->all.at(index), 0, limits);
    }
    Loop& loop;
    const std::shared_ptr<Roads> roads;
  };
  const std::shared_ptr<Roads> roads_;
};

// A simulated network with roads.
class RoadNetwork final : public transport::Network {
 public:
  RoadNetwork(std::uint64_t seed, std::shared_ptr<Roads> roads)
      : streams_(seed), road_(std::make_shared<RoadTransport>(std::move(roads))) {}
  Result<std::unique_ptr<transport::Listener>> listen(Loop& loop, std::string_view address,
                                                      transport::AcceptSink& sink) override {
    return streams_.listen(loop, address, sink);
  }
  Task<Result<std::unique_ptr<transport::Stream>>> connect(Loop& loop, std::string address, Duration timeout) override {
    return streams_.connect(loop, std::move(address), timeout);
  }
  std::vector<std::shared_ptr<transport::Transport>> transports(const TransportOptions&) override { return {road_}; }

 private:
  transport::SimNetwork streams_;
  const std::shared_ptr<transport::Transport> road_;
};

}  // namespace hawser::testing_tools
