#include "rpc/session/memory_frames.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "base/decimal_text.h"
#include "hawser/crc32c.h"
#include "hawser/detail/const_buffers.h"
#include "os/dmabuf_range.h"
#include "rpc/session/session.h"

namespace hawser::detail {

using transport::ReceiveBuffer;
using wire::CallId;
using wire::MemoryAction;

// A frame of this side without an answer.
struct MemoryFrames::Piece final : SendCompletion, PooledFrame {
  explicit Piece(MemoryFrames& of) noexcept : frames(of) {}
  void on_send_complete() noexcept override { loaned = false; }

  MemoryFrames& frames;
  MemoryOperation* operation = nullptr;  // Null: abandoned.
  CallId id;
  TransferPriority priority = TransferPriority::interactive;
  std::size_t bytes = 0;
  std::size_t run = 0;  // The first byte, in the operation's runs.
  std::size_t run_offset = 0;
  bool loaned = false;
  const std::byte* receive_buffer = nullptr;  // Local memory into which the reply is being received.
};

MemoryFrames::MemoryFrames(rpc::Session& session)
    : session_(session),
      busy_window_(session.connection().capabilities().copies_only ? busy_window_of_copies : busy_window),
      pieces_(pieces_max),
      others_sent_(session.connection().committed()) {}

MemoryFrames::~MemoryFrames() {
  pieces_.each_open([](Piece& piece) { delete &piece; });
}

// ---- Operations of this side ----

// A frame, and the reply to it, must fit into the messages of both sides.
std::size_t MemoryFrames::piece_bytes(TransferPriority priority) const noexcept {
  const bool busy = priority == TransferPriority::bulk && busy_bytes_ != 0;
  return std::min(busy ? busy_window_.piece_bytes_max : piece_bytes_max, session_.settings().agreed.send_bytes_max / 2);
}
std::size_t MemoryFrames::piece_ranges() const noexcept {
  return std::clamp(session_.settings().agreed.send_bytes_max / 4 / wire::memory_range_bytes, std::size_t{1},
                    wire::memory_ranges_max);
}

Result<void> MemoryFrames::start(MemoryOperation& operation) {
  if (ended_) return fail(Error::of_connection(ErrorCode::not_sent, "the connection has ended"));
  if (operations_ >= operations_max) {
    return fail(ErrorCode::overloaded, std::to_string(operations_max) +
                                           " accesses to the peer's memory are in progress on this connection: await "
                                           "some first");
  }
  if (DmabufRange::names(operation.runs)) {
    return fail(ErrorCode::unavailable,
                "the local memory is that of a dma-buf descriptor, which the processor cannot access: only RDMA "
                "devices move it, without checksums and leases (RemoteCapabilities::one_sided)");
  }
  ++operations_;
  if (operation.priority == TransferPriority::interactive) busy_bytes_ = busy_period_bytes;
  schedule_.add(operation);
  post();
  return {};
}

bool MemoryFrames::has_window(TransferPriority priority) const noexcept {
  if (pieces_.full() || !session_.has_room()) return false;
  if (priority == TransferPriority::interactive) {
    // Small accesses of many coroutines would use all frames for ever.
    const bool room = in_flight_.interactive.pieces < pieces_max - bulk_pieces;
    return in_flight_.interactive.bytes < window_bytes && (room || !schedule_.waiting(TransferPriority::bulk));
  }
  return in_flight_.bulk.bytes < (busy_bytes_ == 0 ? window_bytes : busy_window_.bytes) &&
         in_flight_.bulk.pieces < pieces_max - interactive_pieces;
}

// Calls, replies and stream items wait behind bulk operations on the wire, as interactive operations do.
void MemoryFrames::notice_other_messages() noexcept {
  const std::uint64_t others = session_.connection().committed() - frames_sent_;
  if (others != std::exchange(others_sent_, others)) busy_bytes_ = busy_period_bytes;
}

// Ends a frame of this class.
void MemoryFrames::end_frame(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  const std::uint64_t before = session_.connection().committed();
  session_.end_frame(pieces, owner);
  if (!ended_) frames_sent_ += session_.connection().committed() - before;
}

void MemoryFrames::post() {
  if (std::exchange(posting_, true)) return;
  if (!ended_ && schedule_.waiting(TransferPriority::bulk)) notice_other_messages();
  while (!ended_) {
    MemoryOperation* const next =
        schedule_.next(has_window(TransferPriority::interactive), has_window(TransferPriority::bulk));
    if (next == nullptr) break;
    MemoryOperation& operation = *next;
    const bool atomic = wire::MemoryBody::atomic(static_cast<std::uint32_t>(operation.action));
    bool sent = false;
    try {
      sent = atomic ? send_atomic(operation) : send_piece(operation);
    } catch (const std::bad_alloc&) {
      operation.failure = Error::of_call(ErrorCode::overloaded, "no memory to send an access to the peer's memory");
    }
    if (ended_) break;
    const bool all = atomic || operation.next_run == operation.runs.size();
    if (sent && !all && !operation.failure) continue;
    schedule_.remove(operation);
    if (!operation.failure) operation.on_posted();
    finish_if_done(operation);
  }
  posting_ = false;
}

// Begins the frame of a new piece. `at` is set to the room for the body. Null, and the operation's error is set, if it
// cannot be sent.
MemoryFrames::Piece* MemoryFrames::open_piece(MemoryOperation& operation, std::size_t body_bytes,
                                              std::size_t payload_bytes, std::byte*& at) {
  auto owned = std::make_unique<Piece>(*this);
  owned->id = pieces_.open(*owned);
  try {
    at = session_.begin_frame(wire::MemoryFrame{.call = owned->id,
                                                .action = static_cast<std::uint32_t>(operation.action),
                                                .wants_crc = operation.wants_crc},
                              body_bytes, payload_bytes);
  } catch (...) {
    pieces_.close(owned->id);
    throw;
  }
  if (at != nullptr) return owned.release();
  pieces_.close(owned->id);
  operation.failure = session_.begin_error();
  return nullptr;
}

// Sends the next frame of a read or write. Returns false if nothing is left to be sent, or the operation has failed.
bool MemoryFrames::send_piece(MemoryOperation& operation) {
  const bool writes = operation.action == MemoryAction::write;
  const std::size_t most = piece_bytes(operation.priority);
  const std::size_t ranges_most = piece_ranges();
  const std::size_t first_run = operation.next_run;
  const std::size_t first_offset = operation.next_offset;
  std::size_t bytes = 0;
  std::size_t ranges = 0;
  std::size_t run = first_run;
  std::size_t offset = first_offset;
  while (run < operation.runs.size() && ranges < ranges_most && bytes < most) {
    const std::size_t part = std::min(operation.runs[run].bytes - offset, most - bytes);
    bytes += part;
    offset += part;
    ++ranges;
    if (offset < operation.runs[run].bytes) break;
    ++run;
    offset = 0;
  }
  if (ranges == 0) return false;
  const std::uint64_t committed_before = session_.connection().committed();
  ConstBuffers buffers(writes ? ranges : 0);
  ConstBuffer* next_buffer = buffers.data();
  std::byte* at = nullptr;
  Piece* const opened =
      open_piece(operation, wire::region_id_bytes + ranges * wire::memory_range_bytes, writes ? bytes : 0, at);
  if (opened == nullptr) return false;
  at = wire::write_region_id(at, operation.region);
  for (std::size_t i = first_run, from = first_offset, left = bytes; left != 0; ++i, from = 0) {
    const TransferBatch::Run& one = operation.runs[i];
    const std::size_t part = std::min(one.bytes - from, left);
    at = wire::write_memory_range(at, {operation.base + one.offset + from, static_cast<std::uint32_t>(part)});
    if (writes) *next_buffer++ = {one.memory + from, part};
    left -= part;
  }
  operation.next_run = run;
  operation.next_offset = offset;
  Piece& piece = *opened;
  piece.bytes = bytes;
  piece.run = first_run;
  piece.run_offset = first_offset;
  piece.loaned = writes;
  begin_piece(piece, operation);
  end_frame(buffers.span(), writes ? &piece : nullptr);
  if (!ended_ && !std::exchange(operation.begun, true)) {
    // The owner may receive a write directly into its memory, so a part of a frame may have been executed.
    operation.mark = writes ? committed_before + 1 : session_.connection().committed();
  }
  return !ended_;
}

bool MemoryFrames::send_atomic(MemoryOperation& operation) {
  std::byte* at = nullptr;
  Piece* const piece = open_piece(operation, wire::region_id_bytes + wire::atomic_operands_bytes, 0, at);
  if (piece == nullptr) return false;
  wire::write_atomic_operands(wire::write_region_id(at, operation.region), operation.operands);
  begin_piece(*piece, operation);
  end_frame();
  if (!ended_) operation.mark = session_.connection().committed();
  operation.begun = true;
  return !ended_;
}

void MemoryFrames::begin_piece(Piece& piece, MemoryOperation& operation) noexcept {
  piece.operation = &operation;
  piece.priority = operation.priority;
  ++operation.pieces;
  InFlight& in_flight = in_flight_.of(piece.priority);
  in_flight.bytes += piece.bytes;
  ++in_flight.pieces;
  schedule_.posted(operation, piece.bytes);
  if (piece.priority == TransferPriority::bulk) busy_bytes_ -= std::min(busy_bytes_, piece.bytes);
}

// Ends a piece that has been answered, or whose connection has ended.
void MemoryFrames::end_piece(Piece* piece) noexcept {
  if (piece->loaned) session_.connection().copy_and_release(*piece);
  InFlight& in_flight = in_flight_.of(piece->priority);
  in_flight.bytes -= piece->bytes;
  --in_flight.pieces;
  pieces_.close(piece->id);
  delete piece;
}

void MemoryFrames::finish(MemoryOperation& operation, std::optional<Error> error) {
  --operations_;
  if (error && operation.confirmed != 0) {
    error->text += "; " + std::to_string(operation.confirmed) + " of " + count_text(operation.bytes, "byte") +
                   " had been confirmed";
  }
  operation.on_done(error);
}

// Finishes an operation of which nothing is queued any more.
void MemoryFrames::finish_if_done(MemoryOperation& operation) {
  if (operation.pieces == 0) finish(operation, std::move(operation.failure));
}

void MemoryFrames::abandon(MemoryOperation& operation) noexcept {
  if (ended_) return;
  schedule_.remove(operation);
  --operations_;
  pieces_.each_open([&](Piece& piece) {
    if (piece.operation != &operation) return;
    piece.operation = nullptr;
    if (std::exchange(piece.loaned, false)) session_.connection().copy_and_release(piece);
    if (piece.receive_buffer != nullptr) session_.connection().revoke_receive_buffer(piece.receive_buffer);
    piece.receive_buffer = nullptr;
  });
}

bool MemoryFrames::on_reply(const wire::MemoryReplyFrame& reply, const wire::Frame& frame,
                            const transport::Message& message) {
  const Pieces::Found found = pieces_.find(reply.call);
  if (found.call == nullptr) return false;
  Piece* const piece = found.call;
  MemoryOperation* const operation = piece->operation;
  if (operation != nullptr) {
    const bool read = operation->action == MemoryAction::read;
    const bool atomic = wire::MemoryBody::atomic(static_cast<std::uint32_t>(operation->action));
    const std::size_t expected = reply.code == ErrorCode::ok && read ? piece->bytes : 0;
    if (!message.discarded && message.payload.size() != expected) return false;
    if (reply.code == ErrorCode::ok && frame.body.size() != (atomic ? sizeof(std::uint64_t) : 0)) return false;
    take_reply(reply, frame, message, *piece, *operation);
    --operation->pieces;
  }
  end_piece(piece);
  if (operation != nullptr) {
    if (operation->failure) schedule_.remove(*operation);
    if (!operation->scheduled()) finish_if_done(*operation);
  }
  post();
  return true;
}

void MemoryFrames::take_reply(const wire::MemoryReplyFrame& reply, const wire::Frame& frame,
                              const transport::Message& message, Piece& piece, MemoryOperation& operation) {
  std::optional<Error> error;
  if (reply.code != ErrorCode::ok) {
    const std::string_view text = as_text(frame.body).substr(0, error_text_bytes_max);
    error = Error::of_call(Initiator::peer, reply.code, std::string(text));
  } else if (message.discarded) {
    error = Error::of_call(ErrorCode::overloaded, "no memory to receive the bytes read");
  } else if (operation.action == MemoryAction::read) {
    // The checksum is that of the local memory, because the payload may lie in memory that the peer shares.
    scatter(piece, operation, message.payload);
    if (operation.wants_crc && checksum_of(piece, operation) != reply.crc) {
      error = Error::of_call(Initiator::peer, ErrorCode::protocol_error,
                             "the CRC32C of the bytes read does not match: they were damaged on their way");
    }
  } else if (operation.action != MemoryAction::write) {
    operation.previous = load_le<std::uint64_t>(frame.body.data());
  }
  if (!error) operation.confirmed += piece.bytes;
  if (error && !operation.failure) operation.failure = std::move(error);
}

// The local memory, if the bytes read are one run there.
ReceiveBuffer MemoryFrames::select_for_reply(const wire::MemoryReplyFrame& reply, std::size_t payload_bytes) noexcept {
  const Pieces::Found found = pieces_.find(reply.call);
  if (found.call == nullptr || found.call->operation == nullptr) return {ReceiveBuffer::Kind::discard, {}};
  Piece& piece = *found.call;
  const MemoryOperation& operation = *piece.operation;
  if (operation.action != MemoryAction::read || payload_bytes != piece.bytes) return {};
  const TransferBatch::Run& run = operation.runs[piece.run];
  if (run.bytes - piece.run_offset < piece.bytes) return {};
  piece.receive_buffer = run.memory + piece.run_offset;
  return {ReceiveBuffer::Kind::given, {run.memory + piece.run_offset, piece.bytes}};
}

// Copies the payload into the local memory, unless it has been received there.
void MemoryFrames::scatter(const Piece& piece, const MemoryOperation& operation, Bytes payload) noexcept {
  for (std::size_t i = piece.run, from = piece.run_offset; !payload.empty(); ++i, from = 0) {
    const TransferBatch::Run& run = operation.runs[i];
    const std::size_t part = std::min(run.bytes - from, payload.size());
    if (run.memory + from != payload.data()) std::memcpy(run.memory + from, payload.data(), part);
    payload = payload.subspan(part);
  }
}

std::uint32_t MemoryFrames::checksum_of(const Piece& piece, const MemoryOperation& operation) noexcept {
  std::uint32_t crc = 0;
  for (std::size_t i = piece.run, from = piece.run_offset, left = piece.bytes; left != 0; ++i, from = 0) {
    const TransferBatch::Run& run = operation.runs[i];
    const std::size_t part = std::min(run.bytes - from, left);
    crc = crc32c(crc, Bytes(run.memory + from, part));
    left -= part;
  }
  return crc;
}

void MemoryFrames::end(const Error& reason, std::uint64_t sent) {
  ended_ = true;
  std::vector<MemoryOperation*> ending;
  schedule_.each([&](MemoryOperation& one) { ending.push_back(&one); });
  schedule_.clear();
  pieces_.each_open([&](Piece& piece) {
    if (piece.operation != nullptr && std::find(ending.begin(), ending.end(), piece.operation) == ending.end()) {
      ending.push_back(piece.operation);
    }
    piece.operation = nullptr;
    piece.loaned = false;  // The connection has ended its loans.
  });
  arriving_.grant.reset();
  for (MemoryOperation* const operation : ending) {
    Error error = Error::of_connection(reason.initiator, ErrorCode::not_sent,
                                       "the connection ended before the access had begun: " + reason.text);
    if (operation->begun && sent >= operation->mark) {
      const bool read = operation->action == MemoryAction::read;
      error.code = read ? ErrorCode::unavailable : ErrorCode::outcome_unknown;
      error.text = read ? "the connection ended while the memory was read: " + reason.text
                        : "the connection ended before the access was confirmed; all or part of it may have been "
                          "executed: " +
                              reason.text;
    }
    finish(*operation, std::move(error));
  }
}

}  // namespace hawser::detail
