#include "transport/rdma/protocol/one_sided.h"

#include <algorithm>
#include <string>
#include <utility>

namespace hawser::transport::rdma {
namespace {

using Kind = RemoteOperation::Kind;

Error ended(Kind kind, bool posted, const Error& reason) {
  if (!posted) {
    return {ErrorCode::not_sent, ErrorScope::connection, reason.initiator, 0,
            "the connection ended before the access had begun: " + reason.text};
  }
  if (kind == Kind::read) {
    return {ErrorCode::unavailable, ErrorScope::connection, reason.initiator, 0,
            "the connection ended while the memory was read: " + reason.text};
  }
  return {
      ErrorCode::outcome_unknown, ErrorScope::connection, reason.initiator, 0,
      "the connection ended before the write was confirmed; all or part of it may have been written: " + reason.text};
}

Error refusal() {
  return {
      ErrorCode::stale_handle, ErrorScope::connection, Initiator::peer, 0,
      "the peer's device refused the access, which ended the connection: the region was revoked, or its handle is not "
      "what the peer gave"};
}

}  // namespace

OneSided::~OneSided() {
  while (!entries_.empty()) {
    if (Block* const block = entries_.pop().block) block->release();
  }
}

Result<void> OneSided::start(RemoteOperation& operation) {
  if (ended_) {
    return fail(ErrorCode::not_sent, "the connection has ended", ErrorScope::connection);
  }
  if (options_.peer_domain == 0 || operation.domain != options_.peer_domain) {
    return fail(ErrorCode::invalid_argument,
                "the region is not of the device at the other end of this connection: its handle must come from this "
                "peer, after its device was opened last");
  }
  if (entries_.size() >= options_.operations_max) {
    return fail(ErrorCode::overloaded, std::to_string(options_.operations_max) +
                                           " one-sided operations are under way on this connection: await some first");
  }
  const MemoryPool::PayloadBlock local = pool_->find_user(operation.memory, operation.bytes);
  if (local.block == nullptr) {
    return fail(ErrorCode::invalid_argument,
                "the local memory does not lie within one RegisteredBuffer that this connection's device knows");
  }
  entries_.push({.operation = &operation,
                 .kind = operation.kind,
                 .memory = {local.memory.data, 0, local.memory.local_key},
                 .bytes = operation.bytes,
                 .address = operation.address,
                 .key = operation.key,
                 .block = local.block});
  post();
  return {};
}

void OneSided::abandon(RemoteOperation& operation) noexcept {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.operation != &operation) continue;
    entry.operation = nullptr;
    entry.bytes = entry.posted;
  }
}

void OneSided::post() {
  if (ended_ || std::exchange(posting_, true)) return;
  while (next_ < entries_.size()) {
    Entry& entry = entries_[next_];
    while (entry.posted < entry.bytes && parts_.size() < options_.parts_max && work_queue_.slots.may_post_data()) {
      Segment part = entry.memory;
      part.data += entry.posted;
      part.bytes = static_cast<std::uint32_t>(std::min(entry.bytes - entry.posted, options_.part_bytes_max));
      const std::uint64_t address = entry.address + entry.posted;
      entry.last_id = entry.kind == Kind::read ? work_queue_.read(part, address, entry.key)
                                               : work_queue_.write(part, address, entry.key);
      if (entry.posted == 0) entry.first_id = entry.last_id;
      entry.posted += part.bytes;
      parts_.push(entry.last_id);
    }
    if (entry.posted < entry.bytes) break;
    ++next_;
    if (entry.operation != nullptr) entry.operation->on_posted();
    if (ended_) break;
  }
  posting_ = false;
  // Operations without bytes and abandoned operations have nothing to wait for.
  if (!ended_) on_completed();
}

void OneSided::on_completed() {
  while (!parts_.empty() && work_queue_.slots.is_done(parts_.front())) parts_.pop();
  while (next_ != 0 && work_queue_.slots.is_done(entries_.front().last_id)) {
    const Entry done = entries_.pop();
    --next_;
    done.block->release();
    if (done.operation != nullptr) done.operation->on_done(std::nullopt);
    if (ended_) return;
  }
}

bool OneSided::refused(std::uint64_t id) noexcept {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.posted == 0 || id < entry.first_id || id > entry.last_id) continue;
    // Message requests may lie between the parts of an operation.
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      if (parts_[part] == id) refused_ = id;
    }
  }
  return refused_ != 0;
}

void OneSided::end(const Error& reason) {
  if (std::exchange(ended_, true)) return;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    RemoteOperation* const operation = std::exchange(entry.operation, nullptr);
    if (operation == nullptr) continue;
    const bool blamed = refused_ != 0 && entry.posted != 0 && refused_ >= entry.first_id && refused_ <= entry.last_id;
    operation->on_done(blamed ? refusal() : ended(entry.kind, entry.posted != 0, reason));
  }
}

}  // namespace hawser::transport::rdma
