#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cluster/retry_pause.h"
#include "cluster/xds/xds_bootstrap.h"
#include "cluster/xds/xds_fields.h"
#include "cluster/xds/xds_messages.h"
#include "cluster/xds/xds_state.h"
#include "hawser/grpc_client.h"
#include "hawser/naming_routes.h"
#include "hawser/scope.h"
#include "hawser/timer.h"
#include "hawser/xds.h"

namespace hawser {
namespace {

// Lists that follow each other in less time are reported together: the work for one grows with the list.
constexpr Duration xds_report_interval = std::chrono::milliseconds(100);
// Servers of gRPC refuse PINGs that come more often than every five minutes.
constexpr Duration xds_ping_interval = std::chrono::minutes(6);

using XdsWriter = Writer<protocol::grpc::ProtoBytes>;

GrpcClientOptions xds_client_options(const XdsOptions& options) {
  GrpcClientOptions grpc;
  grpc.connect_timeout = options.connect_timeout;
  grpc.message_bytes_max = options.message_bytes_max;
  grpc.ping_interval = xds_ping_interval;
  grpc.security = options.security;
  return grpc;
}

// Who follows the clusters of a name beside its main one. The sources of their lists may outlive that of the name.
struct XdsFollowers {
  std::map<std::string, NamingSink*, std::less<>> sinks = {};
  std::function<void(const std::string& cluster, NamingSink& sink)> report = {};  // Empty: that of the name has ended.
};

class XdsClusterSource final : public NamingSource {
 public:
  XdsClusterSource(std::shared_ptr<XdsFollowers> followers, std::string_view cluster)
      : followers_(std::move(followers)), cluster_(cluster) {}
  ~XdsClusterSource() override {
    const auto known = followers_->sinks.find(cluster_);
    if (known != followers_->sinks.end() && known->second == sink_) followers_->sinks.erase(known);
  }

  void start(Loop&, NamingSink& sink) override {
    sink_ = &sink;
    followers_->sinks.insert_or_assign(cluster_, &sink);
    if (followers_->report) followers_->report(cluster_, sink);
  }

 private:
  const std::shared_ptr<XdsFollowers> followers_;
  const std::string cluster_;
  NamingSink* sink_ = nullptr;
};

class XdsSource final : public NamingSource {
 public:
  XdsSource(cluster::XdsState state, std::vector<std::string> servers, XdsOptions options)
      : state_(std::move(state)),
        servers_(std::move(servers)),
        options_(std::move(options)),
        pause_(options_.retry_interval, options_.retry_max) {
    followers_->report = [this](const std::string& cluster, NamingSink& sink) { report_cluster(cluster, sink); };
  }
  ~XdsSource() override { followers_->report = nullptr; }

  void start(Loop& loop, NamingSink& sink) override {
    loop_ = &loop;
    sink_ = &sink;
    client_.emplace(loop, xds_client_options(options_));
    work_.spawn(keep());
  }

 private:
  // Follows one server without an end, and the next one after a stream without an answer.
  Task<void> keep() {
    for (;;) {
      const Time began = loop_->now();
      answered_ = false;
      Error error = std::move((co_await follow()).error());
      error.text = "the control plane at " + servers_[server_] + ": " + error.text;
      client_->close();
      absence_.stop();
      if (reporter_.running()) {  // All that has arrived is good.
        reporter_.stop();
        report();
      }
      if (!answered_) server_ = (server_ + 1) % servers_.size();
      const Time again = answered_ ? began + options_.retry_interval : loop_->now() + pause_.next(*loop_);
      if (answered_) pause_.reset();
      for_each_sink([&error](NamingSink& sink) { sink.on_failure(error); });
      co_await loop_->sleep_until(again);
    }
  }

  // Ends with a failure only.
  Task<Result<void>> follow() {
    CO_TRY(co_await client_->connect(servers_[server_]));
    CallOptions stream_options;
    stream_options.timeout = forever;
    CO_TRY(auto stream, co_await client_->open<&cluster::xds_stream>(stream_options));
    XdsWriter writer = stream.writer();
    auto reader = stream.reader();
    CO_TRY(co_await send(writer, state_.begin(loop_->now())));
    for (;;) {
      CO_TRY(const std::optional<protocol::grpc::ProtoBytes> message, co_await reader.next());
      if (!message) {
        CO_TRY(co_await stream.finish());
        co_return fail(Error::of_call(Initiator::peer, ErrorCode::unavailable, "the stream has ended"));
      }
      answered_ = true;
      CO_TRY(state_.begin_response(message->bytes));
      absence_.stop();
      while (state_.read_response()) co_await loop_->sleep(Duration(1));  // Between them, the loop does other work.
      cluster::XdsState::Step step = state_.end_response(loop_->now());
      watch_absence();
      if (step.news == cluster::XdsState::News::changed) report_soon();
      if (step.news == cluster::XdsState::News::confirmed && !reporter_.running()) {
        for_each_sink([](NamingSink& sink) { sink.on_confirmed(); });
      }
      show_problem();
      if (step.refused) {  // A control plane may send what was refused again at once, for ever.
        co_await loop_->sleep_until(refused_ + options_.retry_interval);
        refused_ = loop_->now();
      }
      CO_TRY(co_await send(writer, std::move(step.requests)));
    }
  }

  Task<Result<void>> send(XdsWriter& writer, std::vector<std::string> requests) {
    for (std::string& request : requests) {
      CO_TRY(co_await writer.write(protocol::grpc::ProtoBytes{std::move(request)}));
    }
    watch_absence();
    co_return Result<void>();
  }

  void watch_absence() {
    absence_.stop();
    if (const Time next = state_.next_time(); next != Time::max()) absence_.start(*loop_, next);
  }

  void note_absence() {
    if (state_.on_time(loop_->now())) report();
    show_problem();
    watch_absence();
  }

  void show_problem() {
    std::string problem = state_.problem();
    if (problem.empty()) return;
    sink_->on_failure(Error::of_call(Initiator::peer, ErrorCode::unavailable, std::move(problem)));
  }

  void report() {
    reported_ = loop_->now();
    // Routes may become others and the same again between two reports, with another main cluster.
    if (reported_routes_ != state_.routes() || reported_main_ != state_.main()) {
      reported_routes_ = state_.routes();
      reported_main_ = state_.main();
      NamingRoutes routes = cluster::naming_routes_of(*reported_routes_, state_.main(), options_.policies);
      routes.open = [followers = followers_](std::string_view cluster) {
        return std::make_unique<XdsClusterSource>(followers, cluster);
      };
      sink_->on_routes(std::make_shared<const NamingRoutes>(std::move(routes)));
    }
    report_cluster(state_.main(), *sink_);
    const auto others = followers_->sinks;  // A report may change it.
    for (const auto& [cluster, sink] : others) report_cluster(cluster, *sink);
    show_problem();
  }
  void report_cluster(const std::string& cluster, NamingSink& sink) const {
    if (!state_.routes()->has(cluster)) return;  // No route leads to it any longer.
    auto now = state_.cluster(cluster);
    if (!now) return sink.on_failure(std::move(now.error()));
    if (options_.policies) sink.on_policy(std::move(now->policy));
    sink.on_shared_endpoints(std::move(now->endpoints));
  }
  template <class Use>
  void for_each_sink(Use use) {
    use(*sink_);
    for (const auto& [cluster, sink] : followers_->sinks) use(*sink);
  }
  void report_soon() {
    if (reporter_.running()) return;
    if (loop_->now() - reported_ >= xds_report_interval) return report();
    reporter_.start(*loop_, reported_ + xds_report_interval);
  }

  const std::shared_ptr<XdsFollowers> followers_ = std::make_shared<XdsFollowers>();
  cluster::XdsState state_;
  std::shared_ptr<const cluster::XdsRoutes> reported_routes_;  // Null: none yet.
  std::string reported_main_;                                  // Their main cluster.
  const std::vector<std::string> servers_;
  const XdsOptions options_;
  cluster::RetryPause pause_;  // After streams without an answer.
  Loop* loop_ = nullptr;
  NamingSink* sink_ = nullptr;
  std::optional<GrpcClient> client_;
  std::size_t server_ = 0;  // Index of the present one.
  bool answered_ = false;   // The present stream has had an answer.
  Time reported_{};         // When the sink last received a list.
  Time refused_{};          // When an answer was last refused.
  MemberTimer<&XdsSource::report> reporter_{*this};
  MemberTimer<&XdsSource::note_absence> absence_{*this};
  Scope work_;
};

Result<void> check_xds_options(const XdsOptions& options) {
  constexpr Duration interval_min = std::chrono::milliseconds(1);
  constexpr Duration interval_max = std::chrono::hours(1);
  for (const Duration interval : {options.absent_timeout, options.retry_interval, options.retry_max}) {
    if (interval >= interval_min && interval <= interval_max) continue;
    return fail(ErrorCode::invalid_argument,
                "XdsOptions: absent_timeout, retry_interval and retry_max must be from 1 ms to 1 h");
  }
  if (options.message_bytes_max > UINT32_MAX) {
    return fail(ErrorCode::invalid_argument, "XdsOptions: message_bytes_max must be at most 4294967295");
  }
  return {};
}

// The name of the listener: "%s" in the template stands for the name.
std::string listener_of(std::string_view form, std::string_view name) {
  if (form.empty()) return std::string(name);
  std::string listener(form);
  for (std::size_t at = listener.find("%s"); at != std::string::npos; at = listener.find("%s", at + name.size())) {
    listener.replace(at, 2, name);
  }
  return listener;
}

}  // namespace

NamingScheme xds_naming(XdsOptions options) {
  return {.name = "xds",
          .open = [options = std::move(options)](std::string_view target) -> Result<std::unique_ptr<NamingSource>> {
            TRY(check_xds_options(options));
            if (const std::size_t slash = target.find('/'); slash != 0 && slash != std::string_view::npos) {
              return fail(ErrorCode::invalid_argument,
                          "authorities are not supported: write xds:///name, with three slashes");
            }
            if (target.starts_with('/')) target.remove_prefix(1);
            if (target.empty() || target.size() > cluster::XdsState::name_bytes_max) {
              return fail(ErrorCode::invalid_argument,
                          "its name has " + std::to_string(target.size()) + " bytes, and must have from 1 to " +
                              std::to_string(cluster::XdsState::name_bytes_max) + ": write xds:///name");
            }
            std::string text = options.bootstrap;
            if (text.empty()) {
              TRY(text, cluster::find_xds_bootstrap());
            }
            TRY(cluster::XdsBootstrap bootstrap, cluster::parse_xds_bootstrap(text, options.security != nullptr));
            cluster::XdsState state(listener_of(bootstrap.listener_template, target), std::string(target),
                                    std::move(bootstrap.node), options.absent_timeout, options.policies);
            return std::make_unique<XdsSource>(std::move(state), std::move(bootstrap.servers), options);
          }};
}

}  // namespace hawser
