#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cluster/dns_answer.h"
#include "cluster/dns_config_question.h"
#include "cluster/dns_list.h"
#include "hawser/naming.h"
#include "hawser/timer.h"
#include "transport/tcp/dns_channel.h"

namespace hawser {
namespace {

using transport::DnsChannel;

class DnsSource final : public NamingSource, DnsChannel::RecordAsker {
 public:
  DnsSource(cluster::DnsName name, std::shared_ptr<transport::NameService> names, const DnsNamingOptions& options)
      : where_{.host = std::move(name.host), .port = name.port},
        names_(std::move(names)),
        list_(std::move(name.port), options.refresh_min, options.refresh_max) {
    if (!options.service_config) return;
    config_.emplace([this](Result<std::string> answer) { sink_->on_service_config(std::move(answer)); });
  }
  ~DnsSource() override {
    if (channel_ != nullptr) channel_->withdraw_records(*this);
  }

  void start(Loop& loop, NamingSink& sink) override {
    loop_ = &loop;
    sink_ = &sink;
    next_round_.start(loop, loop.now());
  }

 private:
  void begin_round() noexcept {
    guarded([&] { ask_channel(); });
  }

  // If memory is exhausted in a step of a round, the round has failed, and the next one follows.
  template <class Step>
  void guarded(Step step) noexcept {
    try {
      step();
    } catch (const std::bad_alloc&) {
      if (channel_ != nullptr) channel_->withdraw_records(*this);
      channel_.reset();
      answered_.stop();
      list_.fail_round("out of memory");
      next_round_.start(*loop_, loop_->after(list_.pause()));
    }
  }

  void ask_channel() {
    Result<std::shared_ptr<DnsChannel>> channel = names_->channel(*loop_);
    if (!channel) {
      list_.fail_round(std::move(channel.error().text));
      return end_round(cluster::DnsList::Step::failed);
    }
    channel_ = std::move(*channel);
    std::vector<std::string> names;
    for (transport::HostPort& one : channel_->names_of(where_)) names.push_back(std::move(one.host));
    list_.begin(std::move(names));
    ask();
  }

  void ask() {
    replies_.assign(list_.types().size(), {});
    missing_ = replies_.size();
    for (const int type : list_.types()) channel_->ask_records(*this, list_.name(), type);
  }

  static cluster::DnsReply reply_to(const DnsChannel::Records& records) {
    cluster::DnsReply reply{
        .kind = records.kind, .may_exist_elsewhere = records.may_exist_elsewhere, .why = std::string(records.why)};
    if (reply.kind != cluster::DnsReply::Kind::found) return reply;
    Result<cluster::DnsAnswer> answer = cluster::parse_dns_answer(records.message, records.type);
    if (!answer) return {.kind = cluster::DnsReply::Kind::failed, .why = std::move(answer.error().text)};
    reply.answer = std::move(*answer);
    return reply;
  }

  void on_records(const DnsChannel::Records& records) noexcept override {
    cluster::DnsReply& reply = replies_[records.type == list_.types().front() ? 0 : 1];
    try {
      reply = reply_to(records);
    } catch (const std::exception&) {
      reply = {.kind = cluster::DnsReply::Kind::failed, .why = "out of memory"};
    }
    // Not within this call of c-ares, because a round may release the channel.
    if (--missing_ == 0) answered_.start(*loop_, loop_->now());
  }

  void on_answered() noexcept {
    guarded([&] { end_round(list_.on_replies(std::move(replies_))); });
  }

  void end_round(cluster::DnsList::Step step) {
    if (step == cluster::DnsList::Step::ask) return ask();
    if (step == cluster::DnsList::Step::listed && config_) config_->ask(*loop_, channel_, list_.name());
    channel_.reset();
    next_round_.start(*loop_, loop_->after(list_.pause()));
    if (step == cluster::DnsList::Step::failed) return sink_->on_failure(list_.error());
    sink_->on_endpoints(list_.endpoints());
  }

  const transport::HostPort where_;
  const std::shared_ptr<transport::NameService> names_;
  cluster::DnsList list_;
  Loop* loop_ = nullptr;
  NamingSink* sink_ = nullptr;
  std::shared_ptr<DnsChannel> channel_;               // While a round runs.
  std::optional<cluster::DnsConfigQuestion> config_;  // Empty: no service config is asked for.
  std::vector<cluster::DnsReply> replies_;
  std::size_t missing_ = 0;  // Replies that have not come.
  MemberTimer<&DnsSource::begin_round> next_round_{*this};
  MemberTimer<&DnsSource::on_answered> answered_{*this};
};

}  // namespace

NamingScheme dns_naming(DnsNamingOptions options) {
  auto service = std::make_shared<transport::NameService>(transport::ResolverOptions{.servers = options.servers});
  return {.name = "dns",
          .open = [options = std::move(options),
                   service](std::string_view target) -> Result<std::unique_ptr<NamingSource>> {
            TRY(cluster::DnsName name, cluster::parse_dns_name(target));
            const auto asked =
                name.servers.empty()
                    ? service
                    : std::make_shared<transport::NameService>(transport::ResolverOptions{.servers = name.servers});
            return std::make_unique<DnsSource>(std::move(name), asked, options);
          }};
}

}  // namespace hawser
