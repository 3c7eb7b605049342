#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hawser/transport/connection.h"
#include "rpc/session/memory_operation.h"
#include "rpc/session/region_table.h"
#include "rpc/session/unsent_replies.h"
#include "wire/call_table.h"

namespace hawser::rpc {
class Session;
}

namespace hawser::detail {

// Access to exposed memory by frames, in both directions of one session: sends the operations of this side, and serves
// those of the peer without a handler. Operations are cut into pieces, so that other messages come between them. Loop's
// thread only.
class MemoryFrames {
 public:
  // Limit of the operations of this side that have not ended.
  static constexpr std::size_t operations_max = 4096;
  // Limit of one frame's data. The next piece waits while window_bytes are on their way, or pieces_max frames.
  static constexpr std::size_t piece_bytes_max = std::size_t{128} << 10;
  // Each class of priority has a window of its own. That of bulk operations is BusyWindow::bytes after an interactive
  // one has begun, or another message such as a call was sent, until busy_period_bytes of bulk operations have been
  // sent, and leaves interactive_pieces frames.
  static constexpr std::size_t window_bytes = std::size_t{512} << 10;
  struct BusyWindow {
    std::size_t bytes = 0;
    std::size_t piece_bytes_max = 0;
  };
  // Holds three frames: one is being sent, one received, and one answered.
  static constexpr BusyWindow busy_window{std::size_t{144} << 10, std::size_t{48} << 10};
  // Connections that copy only (transport::Capabilities) need two.
  static constexpr BusyWindow busy_window_of_copies{std::size_t{96} << 10, std::size_t{48} << 10};
  static constexpr std::size_t busy_period_bytes = std::size_t{2} << 20;
  static constexpr std::size_t pieces_max = 64;
  static constexpr std::size_t interactive_pieces = 16;
  // Frames that interactive operations leave while bulk ones wait.
  static constexpr std::size_t bulk_pieces = 8;
  static_assert(piece_bytes_max <= wire::memory_read_bytes_max);
  // Limit of the text of an error, sent and received.
  static constexpr std::size_t error_text_bytes_max = 512;
  // While the backlog is above send_backlog_bytes_max, a peer with more replies that are not sent is not read.
  static constexpr std::size_t unsent_replies_max = std::size_t{2} << 20;
  // A peer that keeps to its windows never has as many.
  static_assert(unsent_replies_max >
                2 * (window_bytes + piece_bytes_max) + UnsentReplies::merged_bytes_max + (std::size_t{64} << 10));

  explicit MemoryFrames(rpc::Session& session);
  MemoryFrames(const MemoryFrames&) = delete;
  MemoryFrames& operator=(const MemoryFrames&) = delete;
  ~MemoryFrames();

  // ---- Operations of this side ----
  // On an error, the operation has not begun and gets no callback. Callbacks may be called within this call.
  Result<void> start(MemoryOperation& operation);
  // The operation gets no more callbacks, and its local memory is not accessed any more.
  void abandon(MemoryOperation& operation) noexcept;

  // ---- For the session ----
  // Where the payload that `frame` announces goes. `frame` is a MEMORY or MEMORY_REPLY frame.
  transport::ReceiveBuffer select(const wire::Frame& frame, std::size_t payload_bytes);
  // Return false if the peer has violated the protocol.
  bool on_request(const wire::MemoryFrame& request, const wire::Frame& frame, const transport::Message& message);
  bool on_reply(const wire::MemoryReplyFrame& reply, const wire::Frame& frame, const transport::Message& message);
  // There is room for more messages.
  void on_drained() { post(); }
  // The session has ended, having sent the stream up to position `sent`.
  void end(const Error& reason, std::uint64_t sent);

 private:
  struct Piece;
  using Pieces = wire::CallTable<Piece>;

  void post();
  bool has_window(TransferPriority priority) const noexcept;
  void notice_other_messages() noexcept;
  void end_frame(std::span<const ConstBuffer> pieces = {}, SendCompletion* owner = nullptr);
  Piece* open_piece(MemoryOperation& operation, std::size_t body_bytes, std::size_t payload_bytes, std::byte*& at);
  bool send_piece(MemoryOperation& operation);
  bool send_atomic(MemoryOperation& operation);
  void begin_piece(Piece& piece, MemoryOperation& operation) noexcept;
  void end_piece(Piece* piece) noexcept;
  void finish(MemoryOperation& operation, std::optional<Error> error);
  void finish_if_done(MemoryOperation& operation);
  std::size_t piece_bytes(TransferPriority priority) const noexcept;
  std::size_t piece_ranges() const noexcept;
  void take_reply(const wire::MemoryReplyFrame& reply, const wire::Frame& frame, const transport::Message& message,
                  Piece& piece, MemoryOperation& operation);
  transport::ReceiveBuffer select_for_reply(const wire::MemoryReplyFrame& reply, std::size_t payload_bytes) noexcept;
  void scatter(const Piece& piece, const MemoryOperation& operation, Bytes payload) noexcept;
  static std::uint32_t checksum_of(const Piece& piece, const MemoryOperation& operation) noexcept;

  // Serving.
  // The region into which a payload is being received. Kept until the next one, because the connection uses the guard.
  struct Arriving final : transport::ReceiveGuard {
    explicit Arriving(const MemoryFrames& of) noexcept : frames(of) {}
    bool enter() noexcept override;
    void leave() noexcept override { grant->leave(); }
    const MemoryFrames& frames;
    std::shared_ptr<Grant> grant;
  };
  struct Served {
    std::shared_ptr<Grant> grant;
    Error error;  // If `grant` is null.
  };
  Served check(std::uint32_t action, const wire::MemoryBody& body) const;
  void serve_read(const wire::MemoryFrame& request, const wire::MemoryBody& body);
  void serve_write(const wire::MemoryFrame& request, const wire::MemoryBody& body, const transport::Message& message);
  void serve_atomic(const wire::MemoryFrame& request, const wire::MemoryBody& body);
  void reply(wire::CallId call, Bytes body);
  void refuse(wire::CallId call, const Error& error);
  void end_reply(std::span<const ConstBuffer> pieces = {}, SendCompletion* owner = nullptr);

  rpc::Session& session_;
  const BusyWindow busy_window_;
  Pieces pieces_;
  std::size_t operations_ = 0;
  // Frames without an answer.
  struct InFlight {
    std::size_t bytes = 0;
    std::size_t pieces = 0;
  };
  struct InFlightByPriority {
    InFlight interactive;
    InFlight bulk;
    InFlight& of(TransferPriority priority) noexcept { return priority == TransferPriority::bulk ? bulk : interactive; }
  } in_flight_;
  std::size_t busy_bytes_ = 0;  // Bytes of bulk operations until the period ends.
  // Positions that other messages of the session have committed, as of the last look, and those of frames.
  std::uint64_t others_sent_ = 0;
  std::uint64_t frames_sent_ = 0;
  TransferSchedule<MemoryOperation> schedule_;  // Operations with frames to be sent.
  UnsentReplies unsent_replies_;                // Replies that were committed while the backlog was long.
  bool posting_ = false;
  bool ended_ = false;
  Arriving arriving_{*this};
};

}  // namespace hawser::detail
