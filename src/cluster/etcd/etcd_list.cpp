#include "cluster/etcd/etcd_list.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/escaped_text.h"
#include "base/try.h"
#include "cluster/etcd/endpoint_record.h"

namespace hawser::cluster {
namespace {

constexpr std::size_t reason_bytes_max = 200;  // Limit of a text of etcd that an error repeats.

std::unexpected<Error> list_failed(ErrorCode code, std::string text) {
  return fail(Error::of_call(Initiator::peer, code, std::move(text)));
}

}  // namespace

std::string EtcdList::range_request() const {
  return cluster::range_request(prefix_, EndpointLimits::endpoints_max + 1);
}

std::string EtcdList::watch_request() const { return cluster::watch_request(prefix_, revision_ + 1); }

Result<void> EtcdList::check_count(std::int64_t count) const {
  if (std::cmp_less_equal(count, EndpointLimits::endpoints_max)) return {};
  return list_failed(ErrorCode::limit_exceeded, "the service has " + std::to_string(count) +
                                                    " keys in etcd, more than " +
                                                    std::to_string(EndpointLimits::endpoints_max));
}

void EtcdList::apply(const EtcdKey& key) {
  revision_ = std::max(revision_, key.revision);
  if (!key.key.starts_with(prefix_)) return;
  const std::string_view kept = key.key.substr(0, prefix_.size() + key_bytes_max);
  if (!key.removed) {
    endpoints_.insert_or_assign(std::string(kept), endpoint_of(key.value));
  } else if (const auto found = endpoints_.find(kept); found != endpoints_.end()) {
    endpoints_.erase(found);
  }
}

Result<void> EtcdList::on_range(std::string_view response) {
  endpoints_.clear();
  revision_ = 0;
  fragments_ = 0;
  std::size_t keys = 0;
  TRY(const EtcdRange range, read_range(
                                 response,
                                 [&](const EtcdKey& key) {
                                   if (++keys <= EndpointLimits::endpoints_max) apply(key);
                                 }));
  TRY(check_count(std::max(range.count, static_cast<std::int64_t>(keys))));
  if (range.revision <= 0 || range.revision == std::numeric_limits<std::int64_t>::max()) {
    return list_failed(ErrorCode::protocol_error,
                       "etcd has sent a list with the revision " + std::to_string(range.revision));
  }
  revision_ = range.revision;
  return {};
}

Result<EtcdList::News> EtcdList::on_watch(std::string_view response) {
  bool changed = fragments_ != 0;
  const std::int64_t known = revision_;
  TRY(const EtcdWatch watch, read_watch(
                                 response,
                                 [&](const EtcdKey& key) {
                                   changed = true;
                                   // Beyond the limit nothing is kept, and the list is refused below.
                                   if (endpoints_.size() <= EndpointLimits::endpoints_max) apply(key);
                                 }));
  if (watch.compact_revision != 0) {
    return list_failed(ErrorCode::unavailable,
                       "etcd has compacted the changes that were not received, up to revision " +
                           std::to_string(watch.compact_revision));
  }
  if (watch.cancelled) {
    std::string reason;
    append_escaped(reason, watch.reason, reason_bytes_max);
    return list_failed(ErrorCode::unavailable, "etcd has ended the watch: " + reason);
  }
  TRY(check_count(static_cast<std::int64_t>(endpoints_.size())));
  if (watch.fragment) {
    if (++fragments_ <= fragments_max) return News::none;
    return list_failed(ErrorCode::limit_exceeded,
                       "a change in etcd has more than " + std::to_string(fragments_max) + " fragments");
  }
  fragments_ = 0;
  if (changed) return News::changed;
  // A member whose data was restored from an older copy sends no changes up to the revision that is known here.
  if (watch.revision < known) {
    return list_failed(ErrorCode::unavailable, "etcd is at revision " + std::to_string(watch.revision) +
                                                   ", and was at " + std::to_string(known) + " before");
  }
  return watch.created ? News::none : News::confirmed;
}

std::vector<Endpoint> EtcdList::endpoints() const {
  std::vector<Endpoint> endpoints;
  endpoints.reserve(endpoints_.size());
  for (const auto& [key, endpoint] : endpoints_) endpoints.push_back(endpoint);
  return endpoints;
}

}  // namespace hawser::cluster
