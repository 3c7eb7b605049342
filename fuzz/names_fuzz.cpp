#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/consul/consul_instances.h"
#include "cluster/consul/consul_name.h"
#include "cluster/dns_answer.h"
#include "cluster/dns_config.h"
#include "cluster/dns_list.h"
#include "cluster/endpoint_text.h"
#include "cluster/etcd/etcd_list.h"
#include "cluster/kubernetes/kubernetes_list.h"
#include "cluster/kubernetes/kubernetes_name.h"
#include "cluster/xds/xds_bootstrap.h"
#include "cluster/xds/xds_state.h"
#include "hawser/service_config.h"

// Arbitrary service configs, lists of endpoints, answers of name servers, messages of etcd, Consul, Kubernetes and a
// control plane of xDS. Texts of errors are for logs, and what is kept is bounded.
// Input: u8 kind | the bytes. For etcd and xDS, the bytes are messages with a length of two bytes. For a watch of
// Kubernetes, the first byte is the length of the parts in which it arrives.
namespace hawser::cluster {
namespace {

void expect(bool condition) {
  if (!condition) std::abort();
}

void expect_shown(const Error& error) {
  expect(error.text.size() <= 2000 && std::ranges::all_of(error.text, [](char c) { return c >= ' ' && c < '\x7f'; }));
}

void read_config(std::string_view text) {
  const auto config = ServiceConfig::parse(text);
  if (!config) return expect_shown(config.error());
  for (const char* const method : {"", "a", "s/m", "s::m", "t/", "::", "/"}) {
    const MethodConfig* const found = config->find(method);
    if (found == nullptr) continue;
    expect(!found->timeout || *found->timeout >= Duration::zero());
    if (!found->retry) continue;
    expect(found->retry->attempts_max >= 1 && found->retry->attempts_max <= 5);
    expect(found->retry->application_codes.size() <= 16);
  }
}

void read_list(const Result<std::vector<Endpoint>>& list) {
  if (!list) return expect_shown(list.error());
  expect(list->size() <= EndpointLimits::endpoints_max);
  for (const Endpoint& one : *list) expect(one.tags.size() <= EndpointLimits::tags_max);
}

void read_answer(Bytes message, int type) {
  auto answer = parse_dns_answer(message, type);
  if (!answer) return expect_shown(answer.error());
  expect(answer->records.size() <= message.size());
  for (const DnsRecord& record : answer->records) expect(record.host.size() <= 255);
  DnsList list(type == dns_srv ? "" : "80", std::chrono::seconds(1), std::chrono::minutes(5));
  list.begin({"x"});
  std::vector<DnsReply> replies(list.types().size(), DnsReply{.kind = DnsReply::Kind::found});
  replies.front().answer = std::move(*answer);
  static_cast<void>(list.on_replies(std::move(replies)));
  expect(list.pause() >= std::chrono::seconds(1) && list.pause() <= std::chrono::minutes(5));
  for (const Endpoint& one : list.endpoints()) static_cast<void>(why_invalid(one));
}

// The bytes are an answer, and the text of one.
void read_dns_config(Bytes message) {
  std::vector<DnsRecord> records{{.host = "grpc_config=" + std::string(as_text(message))}};
  if (auto answer = parse_dns_answer(message, dns_txt)) {
    std::size_t bytes = 0;
    for (const DnsRecord& record : answer->records) bytes += record.host.size();
    expect(bytes <= message.size());
    records.insert(records.begin(), answer->records.begin(), answer->records.end());
  }
  const auto config = choose_dns_config(records, {.host_name = "me", .lot = 50});
  if (!config) return expect_shown(config.error());
  expect(config->empty() || (config->starts_with('{') && config->ends_with('}')));
}

std::string_view next_message(std::string_view& messages) {
  const std::size_t length = static_cast<unsigned char>(messages[0]) * 256U + static_cast<unsigned char>(messages[1]);
  const std::string_view message = messages.substr(2, length);
  messages.remove_prefix(2 + message.size());
  return message;
}

void follow_etcd(std::string_view messages) {
  EtcdList list("svc/");
  bool known = false;
  while (messages.size() >= 2) {
    const std::string_view message = next_message(messages);
    if (known) {
      const auto news = list.on_watch(message);
      known = news.has_value();
      if (!news) expect_shown(news.error());
    } else {
      const auto read = list.on_range(message);
      known = read.has_value();
      if (!read) expect_shown(read.error());
    }
    if (!known) continue;
    static_cast<void>(list.watch_request());
    for (const Endpoint& one : list.endpoints()) {
      expect(one.address.size() <= EndpointLimits::address_bytes_max + 32 &&
             one.zone.size() <= EndpointLimits::zone_bytes_max + 1 && one.tags.size() <= EndpointLimits::tags_max + 1);
      for (const auto& [key, value] : one.tags) {
        expect(key.size() <= EndpointLimits::tag_bytes_max + 1 && value.size() <= EndpointLimits::tag_bytes_max + 1);
      }
      static_cast<void>(why_invalid(one));
    }
  }
}

// Also a list, if `watch` is one.
void follow_kubernetes(std::string_view watch) {
  if (watch.empty()) return;
  const std::size_t part = static_cast<unsigned char>(watch.front()) + 1U;
  watch.remove_prefix(1);
  if (const auto name = parse_kubernetes_name(watch); !name) expect_shown(name.error());
  KubernetesList list("grpc", "a", 2000);
  if (const auto read = list.on_list(watch); !read) expect_shown(read.error());
  const bool was_list = !list.listing();
  list.begin_watch();
  for (std::size_t at = 0; at < watch.size(); at += part) {
    const auto news = list.on_bytes(watch.substr(at, part));
    expect(list.version().size() <= 128);
    if (!news) {
      expect(list.listing());
      expect_shown(news.error());
      break;
    }
    if (news == KubernetesList::News::expired) break;
  }
  const auto endpoints = list.endpoints();
  if (!endpoints) return expect_shown(endpoints.error());
  expect(was_list || endpoints->size() <= watch.size());
  for (const Endpoint& one : *endpoints) {
    expect(one.address.size() <= EndpointLimits::address_bytes_max + 32);
    expect(one.zone.size() <= EndpointLimits::zone_bytes_max + 1 && one.priority <= 1);
    expect(!one.address.starts_with("unix:"));
    static_cast<void>(why_invalid(one));
  }
}

// The bytes are an answer, and a name.
void read_consul(std::string_view text) {
  if (const auto name = parse_consul_name(text); !name) expect_shown(name.error());
  const auto found = read_consul_instances(text, "zone");
  if (!found) return expect_shown(found.error());
  expect(found->endpoints.size() <= EndpointLimits::endpoints_max + 1);
  for (const Endpoint& one : found->endpoints) {
    expect(one.address.size() <= EndpointLimits::address_bytes_max + 32 && !one.address.starts_with("unix:"));
    expect(one.weight >= 1 && one.weight <= EndpointLimits::weight_max);
    expect(one.zone.size() <= EndpointLimits::zone_bytes_max && one.tags.size() <= EndpointLimits::tags_max);
    static_cast<void>(why_invalid(one));
  }
}

void follow_xds(std::string_view messages) {
  XdsState state("svc", "svc", "node", std::chrono::seconds(15));
  expect(state.begin(Time()).size() == 1);
  while (messages.size() >= 2) {
    const auto step = state.on_response(next_message(messages), Time());
    if (!step) {
      expect_shown(step.error());
      expect(!state.begin(Time()).empty());
      continue;
    }
    expect(step->requests.size() <= xds_kinds + 1);
    state.on_time(Time());
    expect_shown(Error::of_call(ErrorCode::unavailable, state.problem()));
    if (!state.known()) continue;
    const std::vector<std::string>& clusters = state.routes()->clusters;
    expect(clusters.size() <= NamingRoutes::clusters_max && state.routes()->has(state.main()));
    for (const std::string& name : clusters) {
      const auto cluster = state.cluster(name);
      if (!cluster) continue;
      expect(cluster->endpoints->size() <= EndpointLimits::endpoints_max);
      for (const Endpoint& one : *cluster->endpoints) {
        expect(one.weight >= 1 && one.weight <= EndpointLimits::weight_max &&
               one.priority <= EndpointLimits::priority_max && one.zone.size() <= EndpointLimits::zone_bytes_max);
      }
    }
  }
}

void read_bootstrap(std::string_view text) {
  const auto bootstrap = parse_xds_bootstrap(text, true);
  if (!bootstrap) return expect_shown(bootstrap.error());
  expect(!bootstrap->servers.empty() && bootstrap->servers.size() <= 32);
}

}  // namespace
}  // namespace hawser::cluster

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hawser;
  using namespace hawser::cluster;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Bytes bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 12) {
    case 0: read_config(text); break;
    case 1: read_list(parse_endpoint_list(text)); break;
    case 2: read_list(parse_endpoint_lines(text)); break;
    case 3: read_answer(bytes, dns_a); break;
    case 4: read_answer(bytes, dns_aaaa); break;
    case 5: read_answer(bytes, dns_srv); break;
    case 6: follow_etcd(text); break;
    case 7: follow_kubernetes(text); break;
    case 8: read_dns_config(bytes); break;
    case 9: follow_xds(text); break;
    case 11: read_consul(text); break;
    default: read_bootstrap(text); break;
  }
  return 0;
}
