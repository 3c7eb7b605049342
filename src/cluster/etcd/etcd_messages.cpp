#include "cluster/etcd/etcd_messages.h"

#include <cstddef>

#include "base/try.h"

namespace hawser::cluster {
namespace {

using protocol::grpc::add_bytes_field;
using protocol::grpc::add_number_field;
using protocol::grpc::ProtoField;
using protocol::grpc::visit_fields;

// The end of the range of all keys that begin with `prefix`, which is not empty and ends with a slash.
std::string range_end(std::string_view prefix) {
  std::string end(prefix);
  ++end.back();
  return end;
}

void add_range(std::string& message, std::string_view prefix) {
  add_bytes_field(message, 1, prefix);
  add_bytes_field(message, 2, range_end(prefix));
}

Result<void> visit_message(std::string_view message, const std::function<void(const ProtoField&)>& visit) {
  if (visit_fields(message, visit)) return {};
  return fail(Error::of_call(Initiator::peer, ErrorCode::protocol_error, "etcd has sent a malformed message"));
}

std::int64_t number_of_field(const ProtoField& field) noexcept { return static_cast<std::int64_t>(field.value); }

// The revision in a ResponseHeader.
Result<void> read_header(std::string_view header, std::int64_t& revision) {
  return visit_message(header, [&](const ProtoField& field) {
    if (field.number == 3) revision = number_of_field(field);
  });
}

Result<EtcdKey> read_key(std::string_view key_value) {
  EtcdKey key;
  TRY(visit_message(key_value, [&](const ProtoField& field) {
    switch (field.number) {
      case 1: key.key = field.bytes; break;
      case 3: key.revision = number_of_field(field); break;
      case 5: key.value = field.bytes; break;
      default: break;
    }
  }));
  return key;
}

Result<EtcdKey> read_event(std::string_view event) {
  bool removed = false;
  std::string_view key_value;
  TRY(visit_message(event, [&](const ProtoField& field) {
    if (field.number == 1) removed = field.value == 1;
    if (field.number == 2) key_value = field.bytes;
  }));
  TRY(EtcdKey key, read_key(key_value));
  key.removed = removed;
  return key;
}

// Gives the parts of a message to a function until one of them is malformed.
class FirstFailure {
 public:
  void note(Result<void> outcome) {
    if (outcome_ && !outcome) outcome_ = std::move(outcome);
  }
  void note(Result<EtcdKey> key, const std::function<void(const EtcdKey&)>& on_key) {
    if (!key) return note(fail(std::move(key.error())));
    if (outcome_) on_key(*key);
  }
  const Result<void>& outcome() const noexcept { return outcome_; }

 private:
  Result<void> outcome_;
};

}  // namespace

std::string range_request(std::string_view prefix, std::size_t keys_max) {
  std::string message;
  add_range(message, prefix);
  add_number_field(message, 3, keys_max);
  return message;
}

std::string put_request(std::string_view key, std::string_view value, std::int64_t lease) {
  std::string message;
  add_bytes_field(message, 1, key);
  add_bytes_field(message, 2, value);
  add_number_field(message, 3, static_cast<std::uint64_t>(lease));
  return message;
}

std::string watch_request(std::string_view prefix, std::int64_t start_revision) {
  std::string create;
  add_range(create, prefix);
  add_number_field(create, 3, static_cast<std::uint64_t>(start_revision));
  add_number_field(create, 8, 1);  // Large answers may come in fragments.
  std::string message;
  add_bytes_field(message, 1, create);
  return message;
}

std::string watch_progress_request() {
  std::string message;
  add_bytes_field(message, 3, {});
  return message;
}

std::string lease_grant_request(std::chrono::seconds ttl) {
  std::string message;
  add_number_field(message, 1, static_cast<std::uint64_t>(ttl.count()));
  return message;
}

std::string lease_id_request(std::int64_t lease) {
  std::string message;
  add_number_field(message, 1, static_cast<std::uint64_t>(lease));
  return message;
}

std::string authenticate_request(std::string_view user, std::string_view password) {
  std::string message;
  add_bytes_field(message, 1, user);
  add_bytes_field(message, 2, password);
  return message;
}

Result<EtcdRange> read_range(std::string_view response, const std::function<void(const EtcdKey&)>& on_key) {
  EtcdRange range;
  FirstFailure failure;
  TRY(visit_message(response, [&](const ProtoField& field) {
    switch (field.number) {
      case 1: failure.note(read_header(field.bytes, range.revision)); break;
      case 2: failure.note(read_key(field.bytes), on_key); break;
      case 4: range.count = number_of_field(field); break;
      default: break;
    }
  }));
  TRY(failure.outcome());
  return range;
}

Result<EtcdWatch> read_watch(std::string_view response, const std::function<void(const EtcdKey&)>& on_event) {
  EtcdWatch watch;
  FirstFailure failure;
  TRY(visit_message(response, [&](const ProtoField& field) {
    switch (field.number) {
      case 1: failure.note(read_header(field.bytes, watch.revision)); break;
      case 3: watch.created = field.value != 0; break;
      case 4: watch.cancelled = field.value != 0; break;
      case 5: watch.compact_revision = number_of_field(field); break;
      case 6: watch.reason = field.bytes; break;
      case 7: watch.fragment = field.value != 0; break;
      case 11: failure.note(read_event(field.bytes), on_event); break;
      default: break;
    }
  }));
  TRY(failure.outcome());
  return watch;
}

Result<EtcdLease> read_lease(std::string_view response) {
  EtcdLease lease;
  TRY(visit_message(response, [&](const ProtoField& field) {
    if (field.number == 2) lease.id = number_of_field(field);
    if (field.number == 3) lease.ttl = std::chrono::seconds(number_of_field(field));
  }));
  return lease;
}

Result<std::string> read_token(std::string_view authenticate_response) {
  std::string token;
  TRY(visit_message(authenticate_response, [&](const ProtoField& field) {
    if (field.number == 2) token = field.bytes;
  }));
  return token;
}

}  // namespace hawser::cluster
