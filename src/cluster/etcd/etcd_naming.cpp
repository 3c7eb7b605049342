#include <memory>
#include <optional>
#include <utility>

#include "base/try.h"
#include "cluster/etcd/etcd_list.h"
#include "cluster/etcd/etcd_name.h"
#include "cluster/etcd/etcd_session.h"
#include "hawser/etcd.h"
#include "hawser/scope.h"

namespace hawser {
namespace {

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
    co_return std::move(followed.error());
  }

  // Each connection begins with the whole list: changes since an earlier one may have been compacted, or the data may
  // have been restored from an older copy.
  Task<Result<void>> follow_until_failure() {
    CO_TRY(const std::string range, co_await session_->call<&cluster::etcd_range>(list_.range_request()));
    CO_TRY(list_.on_range(range));
    sink_->on_endpoints(list_.endpoints());
    CO_TRY(auto watch, co_await session_->open<&cluster::etcd_watch>(forever));
    WatchWriter writer = watch.writer();
    auto reader = watch.reader();
    CO_TRY(co_await writer.write(protocol::grpc::ProtoBytes{list_.watch_request()}));
    Scope asking;
    asking.spawn(ask_again_and_again(writer));
    for (;;) {
      CO_TRY(const std::optional<protocol::grpc::ProtoBytes> message, co_await reader.next());
      if (!message) {
        CO_TRY(co_await watch.finish());
        co_return fail(Error::of_call(Initiator::peer, ErrorCode::unavailable, "the watch has ended"));
      }
      session_->note_working();
      heard_ = true;
      CO_TRY(const cluster::EtcdList::News news, list_.on_watch(message->bytes));
      if (news == cluster::EtcdList::News::changed) sink_->on_endpoints(list_.endpoints());
      if (news == cluster::EtcdList::News::confirmed) sink_->on_confirmed();
    }
  }

  // Asks etcd for a sign when it was silent. Ends the connection when it gives none.
  Task<void> ask_again_and_again(WatchWriter writer) {
    bool asked = false;
    for (;;) {
      heard_ = false;
      co_await loop_->sleep(session_->options().confirm_interval);
      if (!heard_ && asked) {
        session_->close();
        co_return;
      }
      asked = !heard_;
      if (!heard_)
        static_cast<void>(co_await writer.write(protocol::grpc::ProtoBytes{cluster::watch_progress_request()}));
    }
  }

  cluster::EtcdList list_;
  std::vector<std::string> members_;  // Until start().
  EtcdOptions options_;               // Until start().
  Loop* loop_ = nullptr;
  NamingSink* sink_ = nullptr;
  std::optional<cluster::EtcdSession> session_;
  bool heard_ = false;  // The watch has sent something in this interval.
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
