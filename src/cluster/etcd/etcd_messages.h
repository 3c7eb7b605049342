#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "hawser/context.h"
#include "hawser/error.h"
#include "hawser/method.h"
#include "hawser/stream.h"
#include "hawser/task.h"
#include "protocol/grpc/proto_bytes.h"

// The messages of etcd's API v3 that naming needs (etcdserverpb/rpc.proto, mvccpb/kv.proto), without I/O. Requests are
// made, and answers are read.
namespace hawser::cluster {

std::string range_request(std::string_view prefix, std::size_t keys_max);
std::string put_request(std::string_view key, std::string_view value, std::int64_t lease);
std::string watch_request(std::string_view prefix, std::int64_t start_revision);
std::string watch_progress_request();
std::string lease_grant_request(std::chrono::seconds ttl);
std::string lease_id_request(std::int64_t lease);  // LeaseKeepAliveRequest and LeaseRevokeRequest.
std::string authenticate_request(std::string_view user, std::string_view password);

struct EtcdKey {
  std::string_view key;
  std::string_view value;
  std::int64_t revision = 0;  // The change that gave the key this value, or removed it.
  bool removed = false;
};

// RangeResponse. The keys are given to the function that reads it.
struct EtcdRange {
  std::int64_t revision = 0;
  std::int64_t count = 0;  // All keys, also those beyond the limit of the request.
};
Result<EtcdRange> read_range(std::string_view response, const std::function<void(const EtcdKey&)>& on_key);

// WatchResponse without its events, which are given to the function that reads it.
struct EtcdWatch {
  std::int64_t revision = 0;
  bool created = false;
  bool cancelled = false;
  bool fragment = false;  // More events of the same revisions follow.
  std::int64_t compact_revision = 0;
  std::string_view reason = {};
};
Result<EtcdWatch> read_watch(std::string_view response, const std::function<void(const EtcdKey&)>& on_event);

// LeaseGrantResponse and LeaseKeepAliveResponse.
struct EtcdLease {
  std::int64_t id = 0;
  std::chrono::seconds ttl = {};  // 0 or less: there is no such lease.
};
Result<EtcdLease> read_lease(std::string_view response);

Result<std::string> read_token(std::string_view authenticate_response);

// The methods.
Task<Result<protocol::grpc::ProtoBytes>> etcd_range(Context&, protocol::grpc::ProtoBytes);
Task<Result<protocol::grpc::ProtoBytes>> etcd_put(Context&, protocol::grpc::ProtoBytes);
Task<Result<protocol::grpc::ProtoBytes>> etcd_grant(Context&, protocol::grpc::ProtoBytes);
Task<Result<protocol::grpc::ProtoBytes>> etcd_revoke(Context&, protocol::grpc::ProtoBytes);
Task<Result<protocol::grpc::ProtoBytes>> etcd_authenticate(Context&, protocol::grpc::ProtoBytes);
Task<Result<void>> etcd_watch(Context&, Reader<protocol::grpc::ProtoBytes>, Writer<protocol::grpc::ProtoBytes>);
Task<Result<void>> etcd_keep_alive(Context&, Reader<protocol::grpc::ProtoBytes>, Writer<protocol::grpc::ProtoBytes>);

}  // namespace hawser::cluster

namespace hawser {

template <>
inline constexpr std::string_view method_name_override<&cluster::etcd_range> = "etcdserverpb.KV/Range";
template <>
inline constexpr std::string_view method_name_override<&cluster::etcd_put> = "etcdserverpb.KV/Put";
template <>
inline constexpr std::string_view method_name_override<&cluster::etcd_grant> = "etcdserverpb.Lease/LeaseGrant";
template <>
inline constexpr std::string_view method_name_override<&cluster::etcd_revoke> = "etcdserverpb.Lease/LeaseRevoke";
template <>
inline constexpr std::string_view method_name_override<&cluster::etcd_authenticate> = "etcdserverpb.Auth/Authenticate";
template <>
inline constexpr std::string_view method_name_override<&cluster::etcd_watch> = "etcdserverpb.Watch/Watch";
template <>
inline constexpr std::string_view method_name_override<&cluster::etcd_keep_alive> = "etcdserverpb.Lease/LeaseKeepAlive";

}  // namespace hawser
