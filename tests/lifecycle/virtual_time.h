#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exec/sim_poller.h"
#include "tests/raw_peer.h"
#include "transport/network_access.h"
#include "transport/sim/sim_network.h"
#include "transport/sim/sim_transport.h"
#include "wire/hello.h"

namespace hawser::lifecycle {

using namespace testing_tools;

inline std::string echo(std::string text) { return text; }
inline Task<int> work(Context& context, std::uint32_t seconds) {
  const Result<void> slept = co_await context.loop().sleep(std::chrono::seconds(seconds), context.token());
  co_return slept ? 1 : 0;
}

inline LoopOptions quiet() {
  LoopOptions options;
  options.log = no_log();
  return options;
}

class VirtualTime : public ::testing::Test {
 protected:
  // Runs the coroutine that `body` returns until it ends.
  template <class Body>
  void run(Body body) {
    loop.run(body());
  }
  std::unique_ptr<Server> make_server(ServerOptions options = {}) {
    options.listen = "server:0";
    return std::make_unique<Server>(loop, over(network, std::move(options)));
  }

  Loop loop{std::make_unique<exec::SimPoller>(), quiet()};
  const std::shared_ptr<transport::SimNetwork> network = std::make_shared<transport::SimNetwork>(11);
};

// A client's end of a connection that sends only the bytes that the test gives it.
class RawStream final : transport::StreamSink {
 public:
  RawStream(Loop& loop, std::unique_ptr<transport::Stream> stream) : stream_(std::move(stream)) {
    stream_->start(loop, *this);
  }
  void send(Bytes bytes) {
    const ConstBuffer piece{bytes.data(), bytes.size()};
    EXPECT_EQ(stream_->send(std::span(&piece, 1)), bytes.size());
  }
  bool ended() const { return ended_; }
  const Octets& got() const { return got_; }
  std::string refusal() const {
    const Result<wire::Hello> hello = wire::decode_hello(got_);
    return hello && hello->refusal ? hello->refusal->text : "no refusal";
  }

 private:
  MutableBytes receive_space() override { return space_; }
  void received(std::size_t bytes) override {
    got_.insert(got_.end(), space_.begin(), space_.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
  void sendable(std::size_t) override {}
  void ended(const Error&) override { ended_ = true; }

  Octets space_ = Octets(4096);
  Octets got_;
  bool ended_ = false;
  std::unique_ptr<transport::Stream> stream_;
};

inline Task<std::unique_ptr<RawStream>> connect_raw(Loop& loop, transport::Network& network, std::string address) {
  auto stream = co_await network.connect(loop, address, patience);
  if (!stream) {
    ADD_FAILURE() << error_of(stream);
    co_return nullptr;
  }
  co_return std::make_unique<RawStream>(loop, std::move(*stream));
}

// `count` connections that have sent nothing.
inline Task<std::vector<std::unique_ptr<RawStream>>> connect_silent(Loop& loop, transport::Network& network,
                                                                    std::string address, std::size_t count) {
  std::vector<std::unique_ptr<RawStream>> silent;
  while (silent.size() < count) {
    auto one = co_await connect_raw(loop, network, address);
    if (one == nullptr) break;
    silent.push_back(std::move(one));
  }
  co_return silent;
}

}  // namespace hawser::lifecycle
