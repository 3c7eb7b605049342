#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "base/try.h"
#include "cluster/kubernetes/kubernetes_list.h"
#include "cluster/kubernetes/kubernetes_session.h"
#include "cluster/retry_pause.h"
#include "hawser/kubernetes.h"
#include "hawser/scope.h"
#include "hawser/timer.h"
#include "hawser/with_timeout.h"

namespace hawser {
namespace {

using cluster::KubernetesSession;

// Changes that follow each other in less time are reported together: the work for one grows with the list.
constexpr Duration slices_report_interval = std::chrono::milliseconds(100);
// Until the reason of a refusal must have arrived. A refusal without a reason is reported then.
constexpr Duration reason_time = std::chrono::milliseconds(200);
constexpr int status_ok = 200;
constexpr int status_gone = 410;

class KubernetesSource final : public NamingSource {
 public:
  KubernetesSource(cluster::KubernetesName name, KubernetesOptions options)
      : name_(std::move(name)),
        options_(std::move(options)),
        list_(name_.port, options_.zone, options_.message_bytes_max),
        pause_(options_.retry_interval, options_.retry_max) {}

  void start(Loop& loop, NamingSink& sink) override {
    loop_ = &loop;
    sink_ = &sink;
    session_.emplace(loop, name_, options_);
    work_.spawn(follow());
  }

 private:
  Task<void> follow() {
    co_await loop_->sleep(Duration::zero());  // The loop may not run yet, and the first request needs it.
    for (;;) {
      const Time began = loop_->now();
      Result<void> followed = co_await follow_until_end();
      const bool lasted = loop_->now() - began >= std::min(options_.retry_max, options_.watch_time / 2);
      if (lasted) pause_.reset();
      if (!followed) {
        // A watch that goes on from a version is silent while nothing changes. A list says that the outage is over.
        list_.forget_version();
        followed.error().text = options_.server + ": " + followed.error().text;
        sink_->on_failure(std::move(followed.error()));
      }
      // A server that ends each watch at once must not be asked in a tight loop.
      if (!followed || !lasted) co_await loop_->sleep(pause_.next(*loop_));
    }
  }

  // Succeeds when the server has ended the watch in its time, or does not have the changes behind the version any more.
  Task<Result<void>> follow_until_end() {
    std::optional<HttpClientStream> stream;
    if (list_.listing() && streams_lists_) {
      bool answered = false;
      auto opened = co_await with_timeout(options_.request_timeout, [this, &answered](std::stop_token token) {
        return open_with_list(std::move(token), answered);
      });
      // A server that does not know the parameter answers, and never says that the list has ended.
      const bool late = !opened && opened.error().code == ErrorCode::deadline_exceeded;
      if (late && !answered) opened.error().text.insert(0, "the API server has not answered: ");
      if (!opened && !(late && answered)) co_return fail(std::move(opened.error()));
      if (opened) {
        stream = std::move(*opened);
      } else {
        streams_lists_ = false;
      }
    }
    if (!stream && list_.listing()) {
      CO_TRY(const std::string body, co_await session_->list());
      CO_TRY(list_.on_list(body));
      report_soon();
    }
    if (!stream) {
      CO_TRY(auto opened, co_await session_->watch(KubernetesSession::Begin::at_version, list_.version(), {}));
      if (opened.status == status_gone) {
        list_.forget_version();
        co_return Result<void>();
      }
      if (opened.status != status_ok) co_return fail(co_await refusal_of(opened));
      list_.begin_watch();
      stream = std::move(opened.stream);
    }
    for (;;) {
      CO_TRY(const Part part, co_await read_part(*stream));
      if (part != Part::more) break;
    }
    // The end of a watch says that there was no other change before it.
    if (!list_.listing()) confirm();
    co_return Result<void>();
  }

  // Begins a watch with the whole list. Nothing: the list must be asked for. Sets `answered` when the watch has begun.
  Task<Result<std::optional<HttpClientStream>>> open_with_list(std::stop_token token, bool& answered) {
    CO_TRY(auto opened, co_await session_->watch(KubernetesSession::Begin::with_list, {}, std::move(token)));
    answered = true;
    if (opened.status == 400 || opened.status == 422) {
      streams_lists_ = false;
      co_return std::nullopt;
    }
    if (opened.status != status_ok) co_return fail(co_await refusal_of(opened));
    list_.begin_watch();
    while (list_.listing()) {
      CO_TRY(const Part part, co_await read_part(opened.stream));
      // An expired version says nothing about what the server can do.
      if (part == Part::ended) streams_lists_ = false;
      if (part != Part::more) co_return std::nullopt;
    }
    co_return std::move(opened.stream);
  }

  static Task<Error> refusal_of(KubernetesSession::Opened& opened) {
    std::optional<HttpClientStream> stream = std::move(opened.stream);
    const Result<std::string> body =
        co_await with_timeout(reason_time, [&stream](std::stop_token token) -> Task<Result<std::string>> {
          const std::stop_callback end(token, [&stream] { stream.reset(); });
          co_return co_await stream->read();
        });
    co_return KubernetesSession::refusal(opened.status, body ? *body : std::string());
  }

  enum class Part : std::uint8_t {
    more,
    ended,    // The watch has ended.
    expired,  // The watch is over, and the whole list is needed.
  };
  Task<Result<Part>> read_part(HttpClientStream& stream) {
    using News = cluster::KubernetesList::News;
    CO_TRY(const std::string part, co_await stream.read());
    if (part.empty()) {
      if (list_.between_events()) co_return Part::ended;
      co_return fail(Error::of_call(Initiator::peer, ErrorCode::unavailable, "the watch has ended within an event"));
    }
    CO_TRY(const News news, list_.on_bytes(part));
    if (news == News::changed) report_soon();
    if (news == News::confirmed) confirm();
    co_return news == News::expired ? Part::expired : Part::more;
  }

  void confirm() {
    if (good_ && !reporter_.running()) sink_->on_confirmed();
  }
  void report() {
    reported_ = loop_->now();
    Result<std::vector<Endpoint>> endpoints = list_.endpoints();
    good_ = endpoints.has_value();
    if (!endpoints) return sink_->on_failure(std::move(endpoints.error()));
    sink_->on_endpoints(std::move(*endpoints));
  }
  void report_soon() {
    if (reporter_.running()) return;
    if (loop_->now() - reported_ >= slices_report_interval) return report();
    reporter_.start(*loop_, reported_ + slices_report_interval);
  }

  const cluster::KubernetesName name_;
  const KubernetesOptions options_;
  cluster::KubernetesList list_;
  cluster::RetryPause pause_;
  Loop* loop_ = nullptr;
  NamingSink* sink_ = nullptr;
  std::optional<KubernetesSession> session_;
  bool streams_lists_ = true;  // The server sends a list as the first events of a watch, or has not been asked.
  bool good_ = false;          // The list that was reported last has endpoints.
  Time reported_{};            // When the sink last received the list.
  MemberTimer<&KubernetesSource::report> reporter_{*this};
  Scope work_;
};

}  // namespace

NamingScheme kubernetes_naming(KubernetesOptions options) {
  return {.name = "kubernetes",
          .open = [options = std::move(options)](std::string_view target) -> Result<std::unique_ptr<NamingSource>> {
            TRY(KubernetesOptions complete, cluster::complete_kubernetes_options(options));
            TRY(cluster::KubernetesName name, cluster::parse_kubernetes_name(target));
            return std::make_unique<KubernetesSource>(std::move(name), std::move(complete));
          }};
}

}  // namespace hawser
