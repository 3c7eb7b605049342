#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "cli/call/call_pacer.h"
#include "cli/call/latency.h"
#include "cli/call/outcome.h"
#include "cli/call/peer.h"
#include "cli/call/raw_call.h"
#include "cli/call/server_name.h"
#include "cli/command.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/sync.h"

namespace hawser::cli {
namespace {

struct LoadOptions {
  PeerOptions peer;
  double timeout_s = 10;
  std::string method;
  std::string argument;
  std::optional<double> rate;
  std::optional<unsigned> concurrency;
  double duration_s = 10;
  double ramp_s = 0;
  unsigned connections = 1;
  unsigned in_flight_max = 1000;
  bool json = false;
};

// The calls of one run and their outcomes.
class LoadRun {
 public:
  LoadRun(const LoadOptions& given, const Method& method, std::string request,
          const std::vector<std::unique_ptr<CallPeer>>& peers)
      : given_(given), method_(method), request_(std::move(request)), peers_(peers) {}

  Task<void> run() {
    begin_ = loop_.now();
    end_ = begin_ + duration_of(given_.duration_s);
    auto running = given_.rate ? open_loop() : closed_loop();
    co_await std::move(running);
    seconds_ = std::chrono::duration<double>(loop_.now() - begin_).count();
  }

  std::string text() const {
    std::string out =
        fmt::format("{} in {:.2f} s: {:.1f} answers/s\n", count_text(sent_, "call"), seconds_, answers_per_s());
    for (const auto& [code, count] : failed_) out += fmt::format("{} failed: {}\n", count, code);
    return out + pacer_.late_line() + latencies_.text() + "\n" + latencies_.bars();
  }
  std::string json() const {
    std::string failed;
    for (const auto& [code, count] : failed_)
      failed += fmt::format("{}\"{}\":{}", failed.empty() ? "" : ",", code, count);
    return fmt::format(
        "{{\"sent\":{},\"seconds\":{:.6f},\"answers_per_s\":{:.3f},\"failed\":{{{}}},\"sent_late\":{},\"latency_us\":{}"
        "}}",
        sent_, seconds_, answers_per_s(), failed, pacer_.late(), latencies_.json());
  }
  bool all_answered() const noexcept { return failed_.empty() && latencies_.count() != 0; }

 private:
  double answers_per_s() const { return seconds_ > 0 ? static_cast<double>(latencies_.count()) / seconds_ : 0; }

  // The intended time of a call: the rate grows linearly during the ramp.
  Time intended(std::uint64_t number) const {
    const double rate = *given_.rate;
    const double count = static_cast<double>(number);
    const double in_ramp = rate * given_.ramp_s / 2;
    const double at =
        count < in_ramp ? std::sqrt(2 * given_.ramp_s * count / rate) : given_.ramp_s + (count - in_ramp) / rate;
    return begin_ + duration_of(at);
  }

  Task<void> open_loop() {
    Scope calls;
    for (std::uint64_t i = 0;; ++i) {
      const Time at = intended(i);
      if (at >= end_) break;
      Permit permit = co_await pacer_.admit(at);
      calls.spawn(one(at, i, std::move(permit)));
    }
    co_await calls.join();
  }

  Task<void> closed_loop() {
    Scope workers;
    for (unsigned i = 0; i < given_.concurrency.value_or(1); ++i) workers.spawn(worker(i));
    co_await workers.join();
  }
  Task<void> worker(unsigned number) {
    if (given_.ramp_s > 0) {
      co_await loop_.sleep(duration_of(given_.ramp_s * number / given_.concurrency.value_or(1)));
    }
    while (loop_.now() < end_) {
      auto calling = one(loop_.now(), number, Permit());
      const std::uint64_t before = latencies_.count();
      co_await std::move(calling);
      if (latencies_.count() != before) continue;
      // A server that refuses at once is not called in a tight loop.
      co_await loop_.sleep(std::chrono::milliseconds(1));
    }
  }

  Task<void> one(Time since, std::uint64_t number, Permit) {
    CallOptions options = given_.peer.call_options();
    ++sent_;
    RawCall call(peers_[number % peers_.size()]->link(), method_, request_, std::move(options));
    call.send();
    const Result<RawCall::Answer> answer = co_await call.answer();
    if (answer) {
      latencies_.record(loop_.now() - since);
    } else {
      ++failed_[std::string(to_string(answer.error().code))];
    }
  }

  const LoadOptions& given_;
  const Method& method_;
  const std::string request_;
  const std::vector<std::unique_ptr<CallPeer>>& peers_;
  Loop& loop_ = *Loop::current();
  Time begin_{};
  Time end_{};
  double seconds_ = 0;
  std::uint64_t sent_ = 0;
  CallPacer pacer_{given_.in_flight_max};
  std::map<std::string, std::uint64_t> failed_;
  Latencies latencies_;
};

Task<int> load(LoadOptions given, Output output) {
  if (given.rate.has_value() == given.concurrency.has_value()) {
    co_return output.error(
        Error::of_call(ErrorCode::invalid_argument,
                       "give --rate for calls at intended times, or --concurrency for calls one after another"));
  }
  std::vector<std::unique_ptr<CallPeer>> peers;
  for (unsigned i = 0; i < given.connections; ++i) {
    Result<std::unique_ptr<CallPeer>> peer = co_await connect_peer(given.peer, i);  // Spread over the endpoints.
    if (!peer) co_return output.error(peer.error());
    peers.push_back(std::move(*peer));
  }
  const Result<Method> method = co_await peers[0]->find(given.method);
  if (!method) co_return output.unknown_method(method.error());
  if (method->streams_in || method->streams_out) {
    co_return output.error(Error::of_call(ErrorCode::invalid_argument, "hawser load calls methods without streams"));
  }
  Result<std::string> json = read_argument(given.argument);
  if (!json) co_return output.error(json.error());
  Result<std::string> request = method->arguments ? method->arguments(*json) : std::string();
  if (!request) co_return output.error(request.error());
  LoadRun run(given, *method, std::move(*request), peers);
  co_await run.run();
  output.line(output.json ? run.json() : run.text());
  co_return run.all_answered() ? succeeded : refused;
}

}  // namespace

Run add_load(CLI::App& command) {
  auto options = std::make_shared<LoadOptions>();
  add_peer_options(command, options->peer, options->timeout_s);
  command.add_option("method", options->method, "Method without streams: Service/Method or namespace::function")
      ->required();
  command.add_option("arguments", options->argument, "Arguments as JSON, @FILE or -");
  command
      .add_option("--rate", options->rate,
                  "Calls per second at intended times. Latency counts from the intended time, also if the call is "
                  "sent later")
      ->check(CLI::Range(0.001, 10'000'000.0));
  command.add_option("--concurrency", options->concurrency, "Calls in flight, each followed by the next one")
      ->check(CLI::Range(1U, 65'536U));
  command.add_option("--duration", options->duration_s, "Seconds")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e6));
  command.add_option("--ramp", options->ramp_s, "Seconds in which the rate, or the number of calls in flight, grows")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  command.add_option("--connections", options->connections, "Number of connections")
      ->capture_default_str()
      ->check(CLI::Range(1U, 1000U));
  command.add_option("--in-flight-max", options->in_flight_max, "With --rate: calls in flight; further calls wait")
      ->capture_default_str()
      ->check(CLI::Range(1U, 1'000'000U));
  command.add_flag("--json", options->json, "Print JSON");
  command.footer(std::string("One thread sends the calls. Status 1 if a call failed. ") + statuses);
  return [options] {
    options->peer.timeout = duration_of(options->timeout_s);
    return sync_wait(load(*options, {.command = "load", .json = options->json}));
  };
}

}  // namespace hawser::cli
