#include <memory>
#include <optional>
#include <utility>

#include "base/try.h"
#include "cluster/etcd/etcd_list.h"
#include "cluster/etcd/etcd_name.h"
#include "cluster/etcd/etcd_session.h"
#include "hawser/etcd.h"
#include "hawser/scope.h"
#include "hawser/timer.h"

namespace hawser {
namespace {

// Changes that follow each other in less time are reported together: the work for one grows with the list.
constexpr Duration report_interval = std::chrono::milliseconds(100);

using WatchWriter = Writer<protocol::grpc::ProtoBytes>;

class EtcdSource final : public NamingSource {
 public:
  EtcdSource(cluster::EtcdName name, EtcdOptions options)
      : list_(std::move(name.prefix)), members_(std::move(name.members)), options_(std::move(options)) {}

  void start(Loop& loop, NamingSink& sink) override {
    loop_ = &loop;
    sink_ = &sink;
    session_.emplace(loop, std::move(members_), std::move(options_));
    work_.spawn(
        session_->keep([this] { return follow(); }, [this](Error error) { sink_->on_failure(std::move(error)); }));
  }

 private:
  Task<Error> follow() {
    Result<void> followed = co_await follow_until_failure();
    const ErrorCode why = followed.error().code;
    const bool waits = reporter_.running();
    reporter_.stop();  // The list is unknown now.
    // A message that is malformed or too large may have been applied in part.
    if (waits && why != ErrorCode::protocol_error && why != ErrorCode::limit_exceeded) report();
    co_return std::move(followed.error());
  }

  // Each connection begins with the whole list: changes since an earlier one may have been compacted, or the data may
  // have been restored from an older copy.
  Task<Result<void>> follow_until_failure() {
    CO_TRY(const std::string range, co_await session_->call<&cluster::etcd_range>(list_.range_request()));
    CO_TRY(list_.on_range(range));
    report_soon();
    CO_TRY(auto watch, co_await session_->open<&cluster::etcd_watch>(forever));
    WatchWriter writer = watch.writer();
    auto reader = watch.reader();
    CO_TRY(co_await writer.write(protocol::grpc::ProtoBytes{list_.watch_request()}));
    last_heard_ = loop_->now();
    Scope watching;
    watching.spawn(watch_silence(writer));
    for (;;) {
      CO_TRY(const std::optional<protocol::grpc::ProtoBytes> message, co_await reader.next());
      if (!message) {
        CO_TRY(co_await watch.finish());
        co_return fail(Error::of_call(Initiator::peer, ErrorCode::unavailable, "the watch has ended"));
      }
      session_->note_working();
      last_heard_ = loop_->now();
      CO_TRY(const cluster::EtcdList::News news, list_.on_watch(message->bytes));
      if (news == cluster::EtcdList::News::changed) report_soon();
      if (news == cluster::EtcdList::News::confirmed && !reporter_.running()) sink_->on_confirmed();
    }
  }

  void report() {
    if (!list_.whole()) return;  // The last part of the change causes a report.
    reported_ = loop_->now();
    sink_->on_endpoints(list_.endpoints());
  }
  void report_soon() {
    if (reporter_.running()) return;
    if (loop_->now() - reported_ >= report_interval) return report();
    reporter_.start(*loop_, reported_ + report_interval);
  }

  // Requests the progress of the watch after a silent interval. Closes the connection if nothing arrives in the next
  // one.
  Task<void> watch_silence(WatchWriter writer) {
    const Duration interval = session_->options().confirm_interval;
    for (;;) {
      const Time heard = last_heard_;
      co_await loop_->sleep_until(heard + interval);
      if (last_heard_ != heard) continue;
      const Time asked = loop_->now();
      static_cast<void>(co_await writer.write(protocol::grpc::ProtoBytes{cluster::watch_progress_request()}));
      co_await loop_->sleep_until(asked + interval);
      if (last_heard_ >= asked) continue;
      session_->close();
      co_return;
    }
  }

  cluster::EtcdList list_;
  std::vector<std::string> members_;  // Until start().
  EtcdOptions options_;               // Until start().
  Loop* loop_ = nullptr;
  NamingSink* sink_ = nullptr;
  std::optional<cluster::EtcdSession> session_;
  Time last_heard_{};  // When the watch last sent something, or began.
  Time reported_{};    // When the sink last received the list.
  MemberTimer<&EtcdSource::report> reporter_{*this};
  Scope work_;
};

}  // namespace

NamingScheme etcd_naming(EtcdOptions options) {
  return {.name = "etcd",
          .open = [options = std::move(options)](std::string_view target) -> Result<std::unique_ptr<NamingSource>> {
            TRY(cluster::check_etcd_options(options));
            TRY(cluster::EtcdName name, cluster::parse_etcd_name(target));
            return std::make_unique<EtcdSource>(std::move(name), options);
          }};
}

}  // namespace hawser
