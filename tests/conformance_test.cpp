#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/runtime.h"
#include "tests/conformance/backend.h"
#include "tests/rdma/counters.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/sim/rdma/fabric_poller.h"
#include "transport/sim/sim_network.h"
#include "transport/sim/sim_transport.h"
#include "transport/tcp/tcp_network.h"

// The backends. The tests of the suite are in conformance/.
namespace hawser::conformance {
namespace {

class TcpBackend : public Backend {
 public:
  explicit TcpBackend(PollerKind poller) : poller_(poller) {}

  std::unique_ptr<Loop> make_loop() override { return std::make_unique<Loop>(loop_options()); }
  std::shared_ptr<transport::Network> network() override { return network_; }
  std::string listen_address() override { return "127.0.0.1:0"; }
  std::string dead_address() override { return "127.0.0.1:1"; }
  LoopOptions loop_options() override {
    LoopOptions options;
    options.poller = poller_;
    options.log = no_log();
    return options;
  }
  std::string absent() override {
    std::string reason;
    LoopOptions options = loop_options();
    options.log = [&](LogLevel, std::string_view, std::string_view text) { reason = text; };
    const Loop loop(options);
    const std::string_view wanted = poller_ == PollerKind::io_uring ? "io_uring" : "epoll";
    if (const_cast<Loop&>(loop).poller().name() == wanted) return {};
    return std::string(wanted) + " can't be had here: " + (reason.empty() ? "no reason was logged" : reason);
  }

 private:
  const PollerKind poller_;
  const std::shared_ptr<transport::Network> network_ = std::make_shared<transport::TcpNetwork>();
};

// A Unix socket without a listener refuses a connection at once, before a test can wait for it. TCP covers that case.
class UnixBackend final : public TcpBackend {
 public:
  UnixBackend() : TcpBackend(PollerKind::epoll) {}
  std::string listen_address() override {
    static int count = 0;
    return "unix:@hawser-conformance-" + std::to_string(getpid()) + "-" + std::to_string(++count);
  }
};

// A transport beside the byte stream, enabled by the options that users set.
class TransportBackend : public Backend {
 public:
  explicit TransportBackend(std::string transport) : transport_(std::move(transport)) {}
  std::unique_ptr<Loop> make_loop() override { return std::make_unique<Loop>(loop_options()); }
  std::shared_ptr<transport::Network> network() override { return network_; }
  std::string listen_address() override { return "127.0.0.1:0"; }
  std::string dead_address() override { return "127.0.0.1:1"; }
  LoopOptions loop_options() override {
    LoopOptions options;
    options.log = no_log();
    return options;
  }
  TransportOptions transports() override {
    return {.enabled = {shm(), rdma()}, .order = {transport_}, .required = transport_};
  }
  std::string absent() override {
    const Loop loop(loop_options());
    for (const auto& transport : network_->transports(transports())) {
      if (transport->name() != transport_) continue;
      const auto end = transport->attach(const_cast<Loop&>(loop));
      return end ? std::string() : end.error().text;
    }
    return "this build has no " + transport_;
  }

 private:
  const std::string transport_;
  const std::shared_ptr<transport::Network> network_ = Runtime::process_default()->network();
};

class UcxBackend final : public TransportBackend {
 public:
  explicit UcxBackend(UcxOptions options) : TransportBackend("ucx"), options_(std::move(options)) {}
  TransportOptions transports() override { return {.enabled = {ucx(options_)}, .required = "ucx"}; }

 private:
  const UcxOptions options_;
};

// An RDMA device. Its counters must show that no receiver was ever not ready.
class RdmaBackend final : public TransportBackend {
 public:
  explicit RdmaBackend(bool shared_queue)
      : TransportBackend("rdma"), shared_queue_(shared_queue), not_ready_(rdma_tests::not_ready_count()) {}
  ~RdmaBackend() override { EXPECT_EQ(rdma_tests::not_ready_count(), not_ready_) << "a receiver was not ready"; }
  // A device that can't be used is a failure, not a reason to skip.
  std::string absent() override { return rdma_tests::any_device() ? std::string() : TransportBackend::absent(); }
  TransportOptions transports() override {
    TransportOptions options = TransportBackend::transports();
    options.enable(rdma({.shared_receive_queue = shared_queue_}));
    return options;
  }

 private:
  const bool shared_queue_;
  const std::uint64_t not_ready_;
};

class SimBackend : public Backend {
 public:
  explicit SimBackend(transport::SimOptions options = {})
      : network_(std::make_shared<transport::SimNetwork>(7, options)) {}
  std::unique_ptr<Loop> make_loop() override {
    return std::make_unique<Loop>(std::make_unique<exec::SimPoller>(), loop_options());
  }
  std::shared_ptr<transport::Network> network() override { return network_; }
  std::string listen_address() override { return "server:0"; }
  std::string dead_address() override { return "server:1"; }
  LoopOptions loop_options() override {
    LoopOptions options;
    options.log = no_log();
    return options;
  }
  bool real_time() const override { return false; }

 private:
  const std::shared_ptr<transport::Network> network_;
};

// The simulated transport beside the byte stream, negotiated in the HELLOs.
class SimTransportBackend final : public SimBackend {
 public:
  SimTransportBackend() : SimBackend({.make_transport = &transport::make_sim_transport}) {}
  TransportOptions transports() override { return {.order = {"simpath"}, .required = "simpath"}; }
};

// RDMA over a simulated device, which client and server share.
class SimRdmaBackend final : public SimBackend {
 public:
  std::unique_ptr<Loop> make_loop() override {
    return std::make_unique<Loop>(std::make_unique<transport::FabricPoller>(network_->fabric), loop_options());
  }
  std::shared_ptr<transport::Network> network() override { return network_; }
  TransportOptions transports() override { return {.order = {"rdma"}, .required = "rdma"}; }

 private:
  class Device final : public transport::Network {
   public:
    Result<std::unique_ptr<transport::Listener>> listen(Loop& loop, std::string_view address,
                                                        transport::AcceptSink& sink) override {
      return streams_.listen(loop, address, sink);
    }
    Task<Result<std::unique_ptr<transport::Stream>>> connect(Loop& loop, std::string address,
                                                             Duration timeout) override {
      return streams_.connect(loop, std::move(address), timeout);
    }
    std::vector<std::shared_ptr<transport::Transport>> transports(const TransportOptions& options) override {
      if (options.order.empty()) return {};
      std::shared_ptr<transport::Transport> made = made_.lock();
      if (made == nullptr)
        made_ = made = transport::make_rdma_transport({.device = "sim0", .huge_pages = false}, fabric);
      return {made};
    }
    std::vector<std::string_view> transport_names() const override { return {"rdma"}; }

    const std::shared_ptr<transport::SimFabric> fabric = transport::SimFabric::create({}, 1);

   private:
    transport::SimNetwork streams_{7};
    std::weak_ptr<transport::Transport> made_;
  };
  const std::shared_ptr<Device> network_ = std::make_shared<Device>();
};

}  // namespace

std::vector<BackendFactory> backends() {
  return {
      {"tcp_epoll", [] { return std::unique_ptr<Backend>(new TcpBackend(PollerKind::epoll)); }},
      {"tcp_io_uring", [] { return std::unique_ptr<Backend>(new TcpBackend(PollerKind::io_uring)); }},
      {"unix", [] { return std::unique_ptr<Backend>(new UnixBackend); }},
      {"shm", [] { return std::unique_ptr<Backend>(new TransportBackend("shm")); }},
      {"ucx", [] { return std::unique_ptr<Backend>(new UcxBackend({})); }},
      {"rdma", [] { return std::unique_ptr<Backend>(new RdmaBackend(false)); }},
      {"rdma_shared_queue", [] { return std::unique_ptr<Backend>(new RdmaBackend(true)); }},
      {"sim", [] { return std::unique_ptr<Backend>(new SimBackend); }},
      {"sim_rdma", [] { return std::unique_ptr<Backend>(new SimRdmaBackend); }},
      {"sim_path", [] { return std::unique_ptr<Backend>(new SimTransportBackend); }},
  };
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, ::testing::ValuesIn(backends()),
                         [](const ::testing::TestParamInfo<BackendFactory>& one) { return one.param.name; });

}  // namespace hawser::conformance
