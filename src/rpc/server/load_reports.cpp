#include "hawser/load_reports.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>

#include "os/processor_time.h"
#include "rpc/port/load_report_message.h"
#include "rpc/server/live_options.h"

namespace hawser {
namespace {

using std::chrono::steady_clock;

// Until a change of the quota of the control group is noticed.
constexpr auto processors_interval = std::chrono::seconds(10);

void require_part(double part, double most, const char* name) {
  if (std::isfinite(part) && part >= 0 && part <= most) return;
  throw std::invalid_argument(std::string("hawser: LoadReports: ") + name + " is " + std::to_string(part) +
                              ", and must be at least 0" + (most == 1 ? " and at most 1" : " and finite"));
}

}  // namespace

struct LoadReports::Shared {
  explicit Shared(LoadReportOptions with) : options(with) {}

  // Ends the interval if it is over.
  void measure(Time now) {
    if (now.time_since_epoch().count() < interval_end.load(std::memory_order_relaxed)) return;
    const std::unique_lock lock(measuring, std::try_to_lock);
    if (!lock.owns_lock() || now.time_since_epoch().count() < interval_end.load(std::memory_order_relaxed)) return;
    const std::uint64_t calls_now = calls.load(std::memory_order_relaxed);
    const std::uint64_t errors_now = errors.load(std::memory_order_relaxed);
    const auto used_now = processor_time_used();
    const steady_clock::time_point clock_now = steady_clock::now();
    if (begin != Time()) {
      const double seconds = std::chrono::duration<double>(now - begin).count();
      calls_per_second.store(static_cast<double>(calls_now - calls_begin) / seconds, std::memory_order_relaxed);
      errors_per_second.store(static_cast<double>(errors_now - errors_begin) / seconds, std::memory_order_relaxed);
      const double clock_seconds = std::chrono::duration<double>(clock_now - clock_begin).count();
      if (options.processor_time && clock_seconds > 0) {
        if (processors == 0 || clock_now - processors_read >= processors_interval) {
          processors = processors_of_process();
          processors_read = clock_now;
        }
        cpu.store(std::chrono::duration<double>(used_now - used_begin).count() / clock_seconds / processors,
                  std::memory_order_relaxed);
      }
    }
    begin = now;
    clock_begin = clock_now;
    used_begin = used_now;
    calls_begin = calls_now;
    errors_begin = errors_now;
    interval_end.store((now + options.interval).time_since_epoch().count(), std::memory_order_relaxed);
  }

  LoadReport report(Time now) {
    measure(now);
    return {.cpu_utilization = cpu.load(std::memory_order_relaxed),
            .memory_utilization = memory.load(std::memory_order_relaxed),
            .application_utilization = application.load(std::memory_order_relaxed),
            .calls_per_second = calls_per_second.load(std::memory_order_relaxed),
            .errors_per_second = errors_per_second.load(std::memory_order_relaxed)};
  }

  const LoadReportOptions options;
  std::atomic<std::uint64_t> calls = 0;  // They have ended.
  std::atomic<std::uint64_t> errors = 0;
  std::atomic<double> application = 0;
  std::atomic<double> memory = 0;
  // The values of the last whole interval.
  std::atomic<double> cpu = 0;
  std::atomic<double> calls_per_second = 0;
  std::atomic<double> errors_per_second = 0;

  std::atomic<Duration::rep> interval_end = Duration::min().count();  // Since the epoch of Time.
  std::mutex measuring;
  // ---- With `measuring` locked ----
  double processors = 0;  // The process may use them, as read last. 0: not read.
  steady_clock::time_point processors_read;
  // At the begin of the interval.
  Time begin{};
  steady_clock::time_point clock_begin;
  std::chrono::nanoseconds used_begin{};
  std::uint64_t calls_begin = 0;
  std::uint64_t errors_begin = 0;
};

LoadReports::LoadReports(LoadReportOptions options) {
  if (options.interval < std::chrono::milliseconds(1) || options.interval > std::chrono::hours(24)) {
    throw std::invalid_argument("hawser: LoadReportOptions::interval is " + rpc::option_text(options.interval) +
                                ", and must be from 1 ms to 24 h");
  }
  shared_ = std::make_shared<Shared>(options);
}

Task<Result<void>> LoadReports::operator()(IncomingCall& call, Next next) const {
  const std::shared_ptr<Shared> shared = shared_;
  // A question for the load is not a load that balancing could move elsewhere.
  if (call.method() == method_name_override<&rpc::stream_core_metrics>) co_return co_await next();
  shared->measure(call.loop().now());
  Result<void> result = co_await next();
  shared->calls.fetch_add(1, std::memory_order_relaxed);
  if (!result && result.error().code != ErrorCode::cancelled) shared->errors.fetch_add(1, std::memory_order_relaxed);
  // Others have no place for binary metadata.
  if (!result || (call.protocol() != "hawser" && call.protocol() != "grpc")) co_return result;
  std::string message = rpc::load_report_message(shared->report(call.loop().now()));
  if (!message.empty()) call.add_reply_metadata(std::string(metadata_name), std::move(message));
  co_return result;
}

void LoadReports::set_application_utilization(double part) const {
  require_part(part, HUGE_VAL, "application_utilization");
  shared_->application.store(part, std::memory_order_relaxed);
}

void LoadReports::set_memory_utilization(double part) const {
  require_part(part, 1, "memory_utilization");
  shared_->memory.store(part, std::memory_order_relaxed);
}

LoadReport LoadReports::report(Time now) const { return shared_->report(now); }

}  // namespace hawser
