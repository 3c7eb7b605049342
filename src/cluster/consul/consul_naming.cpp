#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/try.h"
#include "cluster/consul/consul_agent.h"
#include "cluster/consul/consul_instances.h"
#include "cluster/retry_pause.h"
#include "hawser/consul.h"
#include "hawser/scope.h"

namespace hawser {
namespace {

// Changes that follow each other in less time are asked for together: the work for one grows with the list.
constexpr Duration question_interval = std::chrono::milliseconds(100);

class ConsulSource final : public NamingSource {
 public:
  ConsulSource(cluster::ConsulName name, ConsulOptions options)
      : name_(std::move(name)), options_(std::move(options)), pause_(options_.retry_interval, options_.retry_max) {}

  void start(Loop& loop, NamingSink& sink) override {
    loop_ = &loop;
    sink_ = &sink;
    agent_.emplace(loop, name_, options_);
    work_.spawn(follow());
  }

 private:
  Task<void> follow() {
    co_await loop_->sleep(Duration::zero());  // The loop may not run yet, and the first request needs it.
    for (;;) {
      const Time asked = loop_->now();
      Result<void> known = co_await ask();
      if (known) {
        pause_.reset();
        co_await loop_->sleep_until(asked + question_interval);
        continue;
      }
      // A question without an index is answered at once, which says that the outage is over.
      index_ = 0;
      known.error().text = agent_->shown() + ": " + known.error().text;
      sink_->on_failure(std::move(known.error()));
      co_await loop_->sleep(pause_.next(*loop_));
    }
  }

  // Fails if the next question must not follow at once.
  Task<Result<void>> ask() {
    CO_TRY(cluster::ConsulAnswer answer, co_await agent_->ask(index_));
    const bool same = answer.index != 0 && answer.index == index_;
    if (!same) CO_TRY(report(answer));
    // An index that goes back is that of servers that were restored: the next question does not wait for the old one.
    index_ = answer.index < index_ ? 0 : answer.index;
    if (!answer.led) {
      co_return fail(Error::of_call(ErrorCode::unavailable,
                                    "the servers of Consul have no leader, so that the list may be an old one"));
    }
    if (answer.index == 0) {
      co_return fail(Error::of_call(Initiator::peer, ErrorCode::protocol_error,
                                    "the answer has no X-Consul-Index, so that changes are only found by asking again: "
                                    "let a proxy between pass it on"));
    }
    if (same && good_) sink_->on_confirmed();
    co_return Result<void>();
  }

  Result<void> report(const cluster::ConsulAnswer& answer) {
    TRY(cluster::ConsulInstances found, cluster::read_consul_instances(answer.body, options_.zone_key));
    good_ = !found.endpoints.empty();
    if (good_) {
      sink_->on_endpoints(std::move(found.endpoints));
      return {};
    }
    std::string why = found.not_serving == 0
                          ? "Consul has no instance of the service, or the token may not see it"
                          : "no instance of the service serves; " + std::to_string(found.not_serving) +
                                " have a critical check, or the weight 0";
    if (answer.hidden) why += "; some are hidden from the token, which needs service:read and node:read";
    sink_->on_failure(Error::of_call(ErrorCode::unavailable, agent_->shown() + ": " + why));
    return {};
  }

  const cluster::ConsulName name_;
  const ConsulOptions options_;
  cluster::RetryPause pause_;
  Loop* loop_ = nullptr;
  NamingSink* sink_ = nullptr;
  std::optional<cluster::ConsulAgent> agent_;
  std::uint64_t index_ = 0;  // The last answer has it. 0: the next question does not wait for a change.
  bool good_ = false;        // The last answer has endpoints.
  Scope work_;
};

}  // namespace

NamingScheme consul_naming(ConsulOptions options) {
  return {.name = "consul",
          .open = [options = std::move(options)](std::string_view target) -> Result<std::unique_ptr<NamingSource>> {
            TRY(ConsulOptions complete, cluster::complete_consul_options(options));
            TRY(cluster::ConsulName name, cluster::parse_consul_name(target));
            return std::make_unique<ConsulSource>(std::move(name), std::move(complete));
          }};
}

}  // namespace hawser
