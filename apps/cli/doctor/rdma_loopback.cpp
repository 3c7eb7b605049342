#include "cli/doctor/rdma_loopback.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "transport/rdma/device/address.h"

namespace hawser::cli::doctor {
namespace {

using namespace transport::rdma;
using Clock = std::chrono::steady_clock;

constexpr std::size_t ping_bytes = 64;
constexpr std::size_t pings_max = 20'000;
constexpr unsigned window = 4;  // Outstanding sends, each with a posted receive.
constexpr std::size_t page_bytes = 4096;

std::byte pattern(std::size_t send, std::size_t offset) { return static_cast<std::byte>(send * 31 + offset); }

class SelfTest {
 public:
  SelfTest(Device& device, const RdmaOptions& options, const SelfTestPlan& plan)
      : device_(device), options_(options), plan_(plan) {}

  Result<SelfTestResult> run() {
    TRY(prepare());
    TRY(measure_latency());
    TRY(measure_bandwidth());
    return result_;
  }

 private:
  Result<void> prepare() {
    result_.send_bytes = options_.chunk_bytes;
    // The first half is sent from, the second half is received into.
    memory_.resize(2 * window * result_.send_bytes + page_bytes);
    TRY(auto&& region, device_.register_memory(memory_, {}));
    region_ = std::move(region);
    TRY(auto&& queue, device_.create_completion_queue(256));
    queue_ = std::move(queue);
    for (std::unique_ptr<QueuePair>& pair : pairs_) {
      const QueuePairOptions wanted{.completions = queue_.get(),
                                    .send_requests = options_.send_queue_depth,
                                    .receive_requests = options_.recv_queue_depth,
                                    .inline_bytes = static_cast<unsigned>(options_.inline_bytes)};
      TRY(auto&& made, device_.create_queue_pair(wanted, plan_.port));
      pair = std::move(made);
    }
    result_.inline_bytes = pairs_[0]->inline_bytes();
    result_.send_requests = pairs_[0]->send_requests();
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      TRY(pairs_[i]->connect(route_to(*pairs_[1 - i])));
    }
    return {};
  }

  QueuePairRoute route_to(const QueuePair& peer) const {
    QueuePairRoute route = route_with(options_);
    route.port = plan_.port;
    route.gid_index = plan_.address.index;
    route.global = plan_.global;
    route.peer_gid = plan_.address.gid;
    route.peer_lid = plan_.lid;
    route.peer_queue_pair = peer.number();
    route.mtu_bytes = plan_.mtu_bytes;
    return route;
  }

  std::byte* sent_at(std::size_t slot) { return memory_.data() + slot * result_.send_bytes; }
  std::byte* received_at(std::size_t slot) { return memory_.data() + (window + slot) * result_.send_bytes; }

  Result<void> post_receive(std::size_t pair, std::size_t slot, std::size_t bytes) {
    const ReceiveRequest request{slot, {received_at(slot), static_cast<std::uint32_t>(bytes), region_->local_key()}};
    return pairs_[pair]->post_receive({&request, 1});
  }

  Result<void> post_send(std::size_t pair, std::size_t slot, std::size_t bytes) {
    const Segment segment{sent_at(slot), static_cast<std::uint32_t>(bytes), region_->local_key()};
    const SendRequest request{
        .id = slot, .segments = {&segment, 1}, .inlined = bytes <= result_.inline_bytes, .signalled = true};
    return pairs_[pair]->post_send({&request, 1});
  }

  Result<Completion> next() {
    if (taken_ == polled_) {
      const Clock::time_point end = Clock::now() + plan_.completion_timeout;
      taken_ = polled_ = 0;
      while ((polled_ = queue_->poll(completions_)) == 0) {
        if (Clock::now() < end) continue;
        return fail(Error::of_transport(ErrorCode::unavailable, "nothing that was sent to the own address arrives"));
      }
    }
    const Completion& completion = completions_[taken_++];
    if (completion.status != WorkStatus::success) {
      return fail(Error::of_transport(ErrorCode::unavailable, std::string(to_string(completion.status))));
    }
    return completion;
  }

  // Waits until the other side has received. Sends may complete later.
  Result<void> wait_received() {
    while (true) {
      TRY(const Completion& completion, next());
      if (completion.received) return {};
      --pings_unfinished_;
    }
  }

  Result<void> round_trip() {
    for (const std::size_t pair : {1, 0}) {
      TRY(post_receive(pair, pair, ping_bytes));
    }
    for (const std::size_t pair : {0, 1}) {
      TRY(post_send(pair, pair, ping_bytes));
      ++pings_unfinished_;
      TRY(wait_received());
    }
    return {};
  }

  Result<void> finish_pings() {
    while (pings_unfinished_ > 0) {
      TRY(next());
      --pings_unfinished_;
    }
    return {};
  }

  Result<void> measure_latency() {
    std::vector<double> round_trips_us;
    const Clock::time_point end = Clock::now() + plan_.duration;
    while (round_trips_us.size() < pings_max && (Clock::now() < end || round_trips_us.size() < 3)) {
      const Clock::time_point start = Clock::now();
      TRY(round_trip());
      round_trips_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    const auto middle = round_trips_us.begin() + static_cast<std::ptrdiff_t>(round_trips_us.size() / 2);
    std::nth_element(round_trips_us.begin(), middle, round_trips_us.end());
    result_.one_way_us = *middle / 2;
    return finish_pings();
  }

  Result<void> send_filled(std::size_t number) {
    const std::size_t slot = number % window;
    // Bytes at both ends and in the middle are enough to detect wrong data.
    for (const std::size_t offset : probes()) sent_at(slot)[offset] = pattern(number, offset);
    TRY(post_receive(1, slot, result_.send_bytes));
    return post_send(0, slot, result_.send_bytes);
  }

  std::array<std::size_t, 3> probes() const { return {0, result_.send_bytes / 2, result_.send_bytes - 1}; }

  Result<void> check_received(std::size_t number) {
    for (const std::size_t offset : probes()) {
      if (received_at(number % window)[offset] == pattern(number, offset)) continue;
      return fail(Error::of_transport(ErrorCode::internal, "other bytes arrived than were sent"));
    }
    return {};
  }

  Result<void> measure_bandwidth() {
    std::size_t posted = 0;
    std::size_t sent = 0;
    std::size_t received = 0;
    const Clock::time_point start = Clock::now();
    const Clock::time_point end = start + plan_.duration;
    while (true) {
      const bool more = Clock::now() < end || posted < window;
      // A slot is free when its send and its receive have completed. Both queues complete in order.
      while (more && posted < std::min(sent, received) + window) {
        TRY(send_filled(posted));
        ++posted;
      }
      if (sent == posted && received == posted) break;
      TRY(const Completion& completion, next());
      if (!completion.received) {
        ++sent;
        continue;
      }
      TRY(check_received(received));
      ++received;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    result_.send_megabytes_per_second = static_cast<double>(received * result_.send_bytes) / 1e6 / seconds;
    return {};
  }

  Device& device_;
  const RdmaOptions& options_;
  const SelfTestPlan& plan_;
  SelfTestResult result_;
  // Members are declared in the order of their creation, so that queue pairs and regions are destroyed before the
  // objects that they use.
  std::vector<std::byte> memory_;
  std::unique_ptr<MemoryRegion> region_;
  std::unique_ptr<CompletionQueue> queue_;
  std::array<std::unique_ptr<QueuePair>, 2> pairs_;
  std::array<Completion, 32> completions_;
  std::size_t taken_ = 0;
  std::size_t polled_ = 0;
  std::size_t pings_unfinished_ = 0;
};

}  // namespace

Result<SelfTestResult> run_self_test(Device& device, const RdmaOptions& options, const SelfTestPlan& plan) {
  return SelfTest(device, options, plan).run();
}

}  // namespace hawser::cli::doctor
