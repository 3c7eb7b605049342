#include "transport/rdma/protocol/one_sided.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/decimal_text.h"

namespace hawser::transport::rdma {
namespace {

Error ended(bool reads, bool posted, const Error& reason) {
  if (!posted) {
    return Error::of_connection(reason.initiator, ErrorCode::not_sent,
                                "the connection ended before the access had begun: " + reason.text);
  }
  if (reads) {
    return Error::of_connection(reason.initiator, ErrorCode::unavailable,
                                "the connection ended while the memory was read: " + reason.text);
  }
  return Error::of_connection(
      reason.initiator, ErrorCode::outcome_unknown,
      "the connection ended before the write was confirmed; all or part of it may have been written: " + reason.text);
}

Error refusal() {
  return Error::of_connection(
      Initiator::peer, ErrorCode::stale_handle,
      "the peer's device refused the access, which ended the connection: the region was revoked, or its handle is not "
      "what the peer gave");
}

}  // namespace

Result<void> OneSided::start(RemoteOperation& operation) {
  if (ended_) {
    return fail(Error::of_connection(ErrorCode::not_sent, "the connection has ended"));
  }
  if (options_.peer_domain == 0 || operation.domain != options_.peer_domain) {
    return fail(ErrorCode::invalid_argument,
                "the region is not of the device at the other end of this connection: its handle must come from this "
                "peer, after its device was opened last");
  }
  if (open_.size() >= options_.operations_max) {
    return fail(ErrorCode::overloaded, std::to_string(options_.operations_max) +
                                           " one-sided operations are under way on this connection: await some first");
  }
  Entry entry;
  entry.operation = &operation;
  entry.priority = operation.priority;
  entry.deadline = operation.deadline;
  entry.opcode = operation.kind == RemoteOperation::Kind::read ? Opcode::read : Opcode::write;
  entry.runs = operation.runs;
  entry.address = operation.address;
  entry.key = operation.key;
  entry.local_use = operation.local_use;
  for (const TransferBatch::Run& run : operation.runs) {
    if (!hold(entry, run.memory, run.bytes)) {
      return fail(ErrorCode::invalid_argument,
                  "the local memory does not lie within a RegisteredBuffer that this connection's device knows");
    }
    entry.bytes += run.bytes;
  }
  entry.last_held = 0;
  // Packets between two operations wait for neither.
  if (open_.empty()) period_sends_ += work_queue_.sends() - idle_sends_;
  if (entry.priority == TransferPriority::interactive) ++interactive_;
  if (unused_.empty()) unused_.emplace_back();
  entry.self = unused_.begin();
  entry.open = true;
  *entry.self = std::move(entry);
  open_.splice(open_.end(), unused_, unused_.begin());
  schedule_.add(open_.back());
  post();
  return {};
}

// Holds the registered memory of [memory, memory + bytes), which may be that of several neighbours. Memory that was not
// used lately may be held twice, so that many of them take no long search.
bool OneSided::hold(Entry& entry, std::byte* memory, std::size_t bytes) {
  constexpr std::size_t lately = 8;
  while (bytes != 0) {
    const Held* found = find(entry, memory, entry.held.size() - std::min(entry.held.size(), lately));
    if (found == nullptr) {
      const MemoryPool::PayloadBlock block = pool_->find_user_block(memory);
      if (block.block == nullptr) return false;
      Held held(block);
      entry.held.push_back(std::move(held));
      entry.last_held = entry.held.size() - 1;
      found = &entry.held.back();
    }
    const std::size_t part = std::min(bytes, found->bytes_from(memory));
    memory += part;
    bytes -= part;
  }
  return true;
}

// Parts are posted in the order in which their memory was held, so the next one is a good guess.
const OneSided::Held* OneSided::find(Entry& entry, const std::byte* memory, std::size_t from) noexcept {
  for (std::size_t i = entry.last_held; i < std::min(entry.last_held + 2, entry.held.size()); ++i) {
    if (entry.held[i].bytes_from(memory) == 0) continue;
    entry.last_held = i;
    return &entry.held[i];
  }
  for (std::size_t i = from; i < entry.held.size(); ++i) {
    if (entry.held[i].bytes_from(memory) == 0) continue;
    entry.last_held = i;
    return &entry.held[i];
  }
  return nullptr;
}

void OneSided::abandon(RemoteOperation& operation) noexcept {
  for (Entry& entry : open_) {
    if (entry.operation != &operation) continue;
    entry.operation = nullptr;
    if (ended_) return;
    entry.runs = {};
    const bool unfinished = entry.scheduled();
    schedule_.remove(entry);
    entry.bytes = entry.posted;
    // Its last part would have been signalled.
    if (unfinished && entry.posted != 0) post_marker();
    finish_if_done(entry);
    return;
  }
}

// Parts that nothing behind them covers are covered by a read without bytes, which peers always allow.
void OneSided::post_marker() {
  if (unsignalled_parts_ == 0 || !work_queue_.slots.may_post_control()) return;
  work_queue_.access(Opcode::read, {}, 0, 0, true);
  unsignalled_parts_ = unsignalled_bytes_ = 0;
  work_queue_.submit();
}

std::size_t OneSided::window(TransferPriority priority) const noexcept {
  if (priority == TransferPriority::bulk) return bulk_window_.bytes();
  return busy_ ? busy_window_bytes : std::max(window_bytes, 2 * options_.part_bytes_max);
}

std::size_t OneSided::part_bytes(TransferPriority priority) const noexcept {
  const std::size_t most = priority == TransferPriority::bulk ? bulk_window_.part_bytes() : busy_part_bytes;
  return busy_ || priority == TransferPriority::bulk ? std::min(options_.part_bytes_max, most)
                                                     : options_.part_bytes_max;
}

bool OneSided::has_window(TransferPriority priority) noexcept {
  busy_ = busy_ || work_queue_.sends() - period_sends_ >= busy_sends;
  bulk_window_.on_messages(work_queue_.sends() + interactive_);
  // Some work requests are left for interactive operations.
  const std::size_t reserved = priority == TransferPriority::bulk ? options_.parts_max / 8 : 0;
  return parts_.size() < options_.parts_max - reserved && in_flight_bytes(priority) < window(priority) &&
         work_queue_.slots.may_post_data();
}

void OneSided::post() {
  if (ended_ || std::exchange(posting_, true)) return;
  while (!ended_) {
    Entry* const next = schedule_.next(has_window(TransferPriority::interactive), has_window(TransferPriority::bulk));
    if (next == nullptr) break;
    if (next->posted < next->bytes) post_part(*next);
    if (next->posted < next->bytes) continue;
    schedule_.remove(*next);
    if (next->operation != nullptr) next->operation->on_posted();
    if (!ended_) finish_if_done(*next);
  }
  posting_ = false;
  if (!ended_) on_completed();
  if (!ended_) wake_stalled();
}

// A window that has become smaller, because messages are sent now, may be filled by parts that ask for no completion.
// Without one, nothing would ever continue.
void OneSided::wake_stalled() {
  const bool silent = !parts_.empty() && parts_.size() <= unsignalled_parts_;
  if (silent && !schedule_.empty() && !work_queue_.slots.last_is_signalled()) post_marker();
}

void OneSided::post_part(Entry& entry) {
  std::array<Segment, segments_most> segments;
  std::size_t count = 0;
  std::size_t bytes = 0;
  bool may_inline = true;
  const std::size_t most = part_bytes(entry.priority);
  while (entry.runs[entry.run].bytes == 0) ++entry.run;
  const std::uint64_t begin = entry.runs[entry.run].offset + entry.offset;
  while (entry.run < entry.runs.size() && count < options_.segments_max && bytes < most) {
    const TransferBatch::Run& run = entry.runs[entry.run];
    if (run.offset + entry.offset != begin + bytes) break;
    std::byte* const memory = run.memory + entry.offset;
    if (run.bytes != 0) {
      const Held& held = *find(entry, memory, 0);
      const std::size_t part = std::min({run.bytes - entry.offset, most - bytes, held.bytes_from(memory)});
      may_inline = may_inline && !held.dmabuf();
      segments[count++] = {memory, static_cast<std::uint32_t>(part), held.local_key()};
      bytes += part;
      entry.offset += part;
    }
    if (entry.offset < run.bytes) continue;
    ++entry.run;
    entry.offset = 0;
  }
  entry.posted += bytes;
  // The limits of has_window() need completions, also of parts that were posted before the connection became busy.
  const bool must_signal = entry.posted == entry.bytes ||
                           unsignalled_parts_ + 1 >= std::max<std::size_t>(options_.parts_max / 2, 1) ||
                           unsignalled_bytes_ + bytes >= std::min(window(entry.priority), busy_window_bytes) / 2;
  const SendSlots::Posted posted = work_queue_.access(entry.opcode, std::span(segments).first(count),
                                                      entry.address + begin, entry.key, must_signal, may_inline);
  unsignalled_parts_ = posted.signalled ? 0 : unsignalled_parts_ + 1;
  unsignalled_bytes_ = posted.signalled ? 0 : unsignalled_bytes_ + bytes;
  if (entry.first_id == 0) entry.first_id = posted.id;
  entry.last_id = posted.id;
  parts_.push({posted.id, bytes, &entry});
  in_flight_bytes(entry.priority) += bytes;
  schedule_.posted(entry, bytes);
  period_posted_ += bytes;
  if (period_posted_ < period_bytes) return;
  busy_ = work_queue_.sends() - period_sends_ >= busy_sends;
  period_posted_ = 0;
  period_sends_ = work_queue_.sends();
}

void OneSided::on_completed() {
  while (!ended_ && !parts_.empty() && work_queue_.slots.is_done(parts_.front().id)) {
    const Part part = parts_.pop();
    in_flight_bytes(part.entry->priority) -= part.bytes;
    if (part.entry->priority == TransferPriority::bulk) {
      bulk_window_.on_confirmed(part.bytes, schedule_.waiting(TransferPriority::bulk));
    }
    part.entry->confirmed += part.bytes;
    finish_if_done(*part.entry);
  }
}

// Operations without bytes and abandoned operations may have nothing to wait for.
void OneSided::finish_if_done(Entry& entry) {
  if (!entry.open || entry.scheduled() || entry.confirmed < entry.bytes) return;
  entry.open = false;
  RemoteOperation* const operation = std::exchange(entry.operation, nullptr);
  entry.held.clear();  // Releases its memory.
  entry.local_use.reset();
  unused_.splice(unused_.begin(), open_, entry.self);
  idle_sends_ = work_queue_.sends();
  if (operation != nullptr) operation->on_done(std::nullopt);
}

bool OneSided::refused(std::uint64_t id) noexcept {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].id == id) refused_ = id;
  }
  return refused_ != 0;
}

void OneSided::end(const Error& reason) {
  if (std::exchange(ended_, true)) return;
  schedule_.clear();
  for (Entry& entry : open_) {
    RemoteOperation* const operation = std::exchange(entry.operation, nullptr);
    if (operation == nullptr) continue;
    const bool begun = entry.first_id != 0 && entry.first_id <= work_queue_.submitted();
    const bool blamed = refused_ != 0 && begun && refused_ >= entry.first_id && refused_ <= entry.last_id;
    Error error = blamed ? refusal() : ended(entry.opcode == Opcode::read, begun, reason);
    if (entry.confirmed != 0) {
      error.text +=
          "; " + std::to_string(entry.confirmed) + " of " + count_text(entry.bytes, "byte") + " had been confirmed";
    }
    operation->on_done(error);
  }
}

}  // namespace hawser::transport::rdma
