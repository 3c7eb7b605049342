// The command that measures a volume as its clients of Hawser use it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "block/command.h"
#include "block/store/aligned_buffer.h"
#include "block/volume.h"
#include "block/volume_server_options.h"
#include "hawser/client.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "tls/client_options.h"

namespace hawser::block {
namespace {

using Clock = std::chrono::steady_clock;

// The memory of all requests in progress is limited.
constexpr std::uint64_t measured_bytes_max = std::uint64_t{1} << 30;

struct MeasureGiven {
  VolumeServerOptions remote = {};
  std::string name = {};
  bool writes = false;
  std::uint64_t bytes = 4096;
  unsigned depth = 1;
  unsigned seconds = 5;
  Wait wait = Wait::spin;
};

// Requests of a volume at random places, `depth` at a time.
class VolumeLoad {
 public:
  VolumeLoad(Client& client, const MeasureGiven& given) : volume_(client, given.name), given_(given) {}

  Task<Result<void>> run() {
    const Result<std::uint64_t> size = co_await volume_.size();
    if (!size) co_return std::unexpected(size.error());
    if (given_.bytes * given_.depth > measured_bytes_max) {
      co_return fail(ErrorCode::invalid_argument,
                     fmt::format("{} requests of {} bytes need more than {} bytes of memory: reduce --depth or --bytes",
                                 given_.depth, given_.bytes, measured_bytes_max));
    }
    if (*size < given_.bytes) {
      co_return fail(ErrorCode::invalid_argument, fmt::format("volume {} has {} bytes, and a request has {} (--bytes)",
                                                              given_.name, *size, given_.bytes));
    }
    places_ = *size / given_.bytes;
    const Clock::time_point begin = Clock::now();
    end_ = begin + std::chrono::seconds(given_.seconds);
    Scope requests;
    for (unsigned number = 0; number < given_.depth; ++number) requests.spawn(request_until_end(number));
    co_await requests.join();
    seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
    if (failure_) co_return std::unexpected(*failure_);
    co_return Result<void>{};
  }

  void print() {
    std::ranges::sort(latencies_ns_);
    const auto at = [&](double part) {
      return latencies_ns_[static_cast<std::size_t>(part * static_cast<double>(latencies_ns_.size() - 1))] / 1e3;
    };
    const auto count = static_cast<double>(latencies_ns_.size());
    const double sum = std::accumulate(latencies_ns_.begin(), latencies_ns_.end(), 0.0);
    fmt::print("{} of {} bytes, depth {}: {:.0f}/s, {:.0f} MiB/s, mean {:.1f} us, P50 {:.1f}, P90 {:.1f}, P99 {:.1f}\n",
               given_.writes ? "writes" : "reads", given_.bytes, given_.depth, count / seconds_,
               count * static_cast<double>(given_.bytes) / seconds_ / (1 << 20), sum / count / 1e3, at(0.5), at(0.9),
               at(0.99));
  }

 private:
  // At least one request.
  Task<void> request_until_end(unsigned seed) {
    std::mt19937_64 random(seed);
    AlignedBuffer memory(given_.bytes);
    std::ranges::fill(memory.bytes(), std::byte{1});
    for (Clock::time_point begin = Clock::now(); !failure_;) {
      const std::uint64_t offset = random() % places_ * given_.bytes;
      const Result<void> done = given_.writes ? co_await volume_.write(offset, memory.bytes())
                                              : co_await volume_.read(offset, memory.bytes());
      if (!done) failure_ = done.error();
      const Clock::time_point end = Clock::now();
      latencies_ns_.push_back(static_cast<std::uint32_t>(std::min<std::int64_t>((end - begin).count(), UINT32_MAX)));
      begin = end;
      if (end >= end_) break;
    }
  }

  Volume volume_;
  const MeasureGiven& given_;
  std::uint64_t places_ = 0;
  Clock::time_point end_;
  double seconds_ = 0;
  std::vector<std::uint32_t> latencies_ns_;
  std::optional<Error> failure_;
};

Task<int> measure(const MeasureGiven& given) {
  Client client(given.remote.client_options());
  Result<void> done = co_await client.connect(given.remote.connect);
  if (done) {
    VolumeLoad load(client, given);
    done = co_await load.run();
    if (done) load.print();
  }
  if (done) co_return 0;
  fmt::print(stderr, "hawser-block: {}\n", done.error().text);
  co_return 1;
}

}  // namespace

Run add_measure(CLI::App& command) {
  auto given = std::make_shared<MeasureGiven>();
  add_server_and_transport(command, given->remote);
  command.add_option("name", given->name, "The volume")->required();
  command.add_flag("--write", given->writes, "Write: the contents of the volume are lost");
  command.add_option("--bytes", given->bytes, "Of a request, such as 64K")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(1, 32 << 20))
      ->capture_default_str();
  command.add_option("--depth", given->depth, "Requests in progress at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_option("--seconds", given->seconds, "How long")->check(CLI::Range(0, 60))->capture_default_str();
  add_wait(command, given->wait);
  return [given] { return sync_wait(measure(*given), {.wait = given->wait}); };
}

}  // namespace hawser::block
