#include "cluster/dns_list.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "cluster/endpoint_text.h"
#include "transport/tcp/socket.h"

namespace hawser::cluster {
namespace {

constexpr unsigned retry_doublings_max = 20;

// A target of SRV with other bytes could be another kind of address, such as unix:/path.
bool is_host_name(std::string_view text) noexcept {
  constexpr std::string_view marks = "-_.";
  return std::ranges::all_of(text, [&](char one) {
    return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') ||
           marks.contains(one);
  });
}

}  // namespace

Result<DnsName> parse_dns_name(std::string_view target) {
  DnsName name;
  if (const std::size_t slash = target.rfind('/'); slash != std::string_view::npos) {
    name.servers = target.substr(0, slash);
    target.remove_prefix(slash + 1);
  }
  const bool services = target.starts_with('_') && !target.contains(':');
  const std::string address = std::string(target) + (services ? ":1" : "");
  if (std::string why = why_invalid({.address = address}); !why.empty() || address.starts_with("unix:")) {
    return fail(ErrorCode::invalid_argument,
                "write dns:host:port, or dns:_service._tcp.host for SRV records: " +
                    (why.empty() ? std::string("a path of a socket has no records") : why));
  }
  const std::size_t colon = address.rfind(':');
  name.host = address.substr(0, colon);
  if (!services) name.port = address.substr(colon + 1);
  const Result<transport::HostPort> where = transport::parse_host_port(address);
  if (where && transport::resolve(*where, false, false)) {
    return fail(ErrorCode::invalid_argument, "'" + name.host + "' is an address: write list:" + address);
  }
  return name;
}

DnsList::DnsList(std::string port, Duration refresh_min, Duration refresh_max)
    : port_(std::move(port)),
      refresh_min_(std::max<Duration>(refresh_min, std::chrono::milliseconds(1))),
      refresh_max_(std::max(refresh_max, refresh_min_)),
      types_(port_.empty() ? std::vector<int>{dns_srv} : std::vector<int>{dns_aaaa, dns_a}) {}

void DnsList::begin(std::vector<std::string> names) {
  names_ = std::move(names);
  at_ = 0;
  why_.clear();
}

DnsList::Step DnsList::on_replies(std::vector<DnsReply> replies) {
  using Kind = DnsReply::Kind;
  const auto failed = std::ranges::find(replies, Kind::failed, &DnsReply::kind);
  if (std::ranges::find(replies, Kind::found, &DnsReply::kind) == replies.end()) {
    // The first failure counts, and not that the last name does not exist.
    if (why_.empty() && failed != replies.end()) why_ = name() + ": " + failed->why;
    if (at_ + 1 < names_.size() && std::ranges::all_of(replies, &DnsReply::may_exist_elsewhere)) {
      ++at_;
      return Step::ask;
    }
    fail_round(why_.empty() ? name() + ": " + replies.front().why : why_);
    return Step::failed;
  }
  // The names of two domains are two hosts, so that their records are not mixed.
  if (listed_name_ != name()) records_ = {};
  listed_name_ = name();
  std::uint32_t ttl_seconds = UINT32_MAX;
  for (std::size_t i = 0; i < replies.size(); ++i) {
    // If the question for one type fails, its last records stay.
    if (replies[i].kind == Kind::failed) continue;
    records_[i] = std::move(replies[i].answer.records);
    if (replies[i].kind == Kind::found) ttl_seconds = std::min(ttl_seconds, replies[i].answer.ttl_seconds);
  }
  failures_ = 0;
  pause_ = std::clamp<Duration>(std::chrono::seconds(ttl_seconds), refresh_min_, refresh_max_);
  return Step::listed;
}

void DnsList::fail_round(std::string why) {
  why_ = std::move(why);
  const int factor = 1 << std::min(failures_, retry_doublings_max);
  pause_ = refresh_min_ > refresh_max_ / factor ? refresh_max_ : refresh_min_ * factor;
  ++failures_;
}

Error DnsList::error() const { return Error::of_call(ErrorCode::unavailable, why_); }

std::vector<Endpoint> DnsList::endpoints() const {
  std::vector<std::uint16_t> priorities;
  for (const auto& records : records_) {
    for (const DnsRecord& record : records) priorities.push_back(record.priority);
  }
  std::ranges::sort(priorities);
  priorities.erase(std::ranges::unique(priorities).begin(), priorities.end());
  std::vector<Endpoint> endpoints;
  for (const auto& records : records_) {
    for (const DnsRecord& record : records) {
      // RFC 2782: the target "." means that there is no such service.
      if (record.host.empty() || (port_.empty() && !is_host_name(record.host))) continue;
      const auto rank = std::ranges::lower_bound(priorities, record.priority) - priorities.begin();
      endpoints.push_back({.address = record.host + ":" + (port_.empty() ? std::to_string(record.port) : port_),
                           .weight = std::max<std::uint32_t>(record.weight, 1),
                           .priority = static_cast<std::uint32_t>(rank)});
    }
  }
  // Name servers rotate their answers. That is not a change.
  std::ranges::sort(endpoints, {}, [](const Endpoint& one) { return std::tie(one.priority, one.address); });
  return endpoints;
}

}  // namespace hawser::cluster
