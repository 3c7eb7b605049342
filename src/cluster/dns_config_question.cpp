#include "cluster/dns_config_question.h"

#include <exception>
#include <utility>

#include "base/quick_random.h"
#include "base/try.h"
#include "os/host_name.h"

namespace hawser::cluster {

using transport::DnsChannel;

DnsConfigQuestion::DnsConfigQuestion(std::function<void(Result<std::string>)> answered)
    : answered_(std::move(answered)),
      client_{.host_name = host_name(), .lot = static_cast<unsigned>(quick_random() % 100)} {}

DnsConfigQuestion::~DnsConfigQuestion() {
  if (channel_ != nullptr) channel_->withdraw_records(*this);
}

void DnsConfigQuestion::ask(Loop& loop, std::shared_ptr<DnsChannel> channel, const std::string& name) {
  if (channel_ != nullptr) return;
  const std::string record = "_grpc_config." + name;
  loop_ = &loop;
  channel->ask_records(*this, record, dns_txt);
  channel_ = std::move(channel);  // Not before: without memory for the question, none is open.
}

Result<std::string> DnsConfigQuestion::config_in(const DnsChannel::Records& records) const {
  using Kind = DnsChannel::Records::Kind;
  if (records.kind == Kind::absent) return std::string();
  if (records.kind == Kind::failed) {
    return fail(ErrorCode::unavailable, "no answer about a service config: " + std::string(records.why));
  }
  TRY(const DnsAnswer answer, parse_dns_answer(records.message, dns_txt));
  return choose_dns_config(answer.records, client_);
}

void DnsConfigQuestion::on_records(const DnsChannel::Records& records) noexcept {
  try {
    answer_ = config_in(records);
  } catch (const std::exception&) {
    answer_ = fail(ErrorCode::overloaded, "out of memory");
  }
  // Not within this call of c-ares, because the channel may be released.
  reporter_.start(*loop_, loop_->now());
}

void DnsConfigQuestion::report() noexcept {
  channel_.reset();
  try {
    answered_(std::move(answer_));
  } catch (const std::exception&) {
    return;  // Memory is exhausted. The next answer is reported.
  }
}

}  // namespace hawser::cluster
