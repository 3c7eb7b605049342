#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"
#include "hawser/metadata.h"
#include "hawser/time.h"
#include "protocol/grpc/compression.h"
#include "protocol/grpc/message_reader.h"
#include "protocol/http2/request_rules.h"

namespace hawser::protocol::grpc {

// The fields of a header block or of several blocks of one stream, as far as gRPC uses them.
struct HeaderFields {
  static constexpr int no_status = -2;
  // Fields that hold at most so much memory are not charged, and keep it for the next stream.
  static constexpr std::size_t free_bytes_max = 1024;

  std::string path;
  bool post = false;
  bool grpc_content = false;  // content-type is application/grpc, with any suffix.
  bool bad_timeout = false;
  bool bad_metadata = false;  // A field that can't be metadata, such as -bin without base64.
  bool too_many = false;      // More metadata than a call may have; pairs are missing.
  bool too_large = false;     // The list exceeds metadata_bytes_max; fields are missing.
  bool no_memory = false;     // The fields could not be charged; those with text are missing.
  std::optional<Duration> timeout;
  Encoding encoding = Encoding::identity;
  Encodings accepted;
  int http_status = 0;
  int grpc_status = no_status;  // -1: malformed.
  std::string grpc_message;
  std::vector<std::byte> metadata;  // Encoded as wire/metadata.h describes.
  std::size_t metadata_entries = 0;
  std::size_t list_bytes = 0;  // As SETTINGS_MAX_HEADER_LIST_SIZE counts.

  // ---- For requests that are not gRPC, if they are kept: `keep_plain`. Fields that come before the content type of a
  // request of gRPC are kept for nothing. ----
  bool keep_plain = false;
  std::string method;
  std::string authority;
  std::string plain;  // The names and the values of all other fields, one after another.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> plain_sizes;

  void clear() noexcept;
  // The memory that the fields hold.
  std::size_t held_bytes() const noexcept;
  // Releases the fields because they can't be charged.
  void refuse_memory() noexcept;
  // Adds a field that has been decoded. `list_bytes_max` is the limit of list_bytes.
  void add(std::string_view name, std::string_view value, std::size_t list_bytes_max);

 private:
  void add_metadata(std::string_view name, std::string_view value);
  void append(std::string_view name, std::string_view value);
  void release_text() noexcept;
};

// A part of what a stream sends. Small parts are copied when they leave the queue.
struct OutgoingChunk {
  Buffer own;                       // Or
  ConstBuffer loan;                 // a piece of the memory of `owner`.
  SendCompletion* owner = nullptr;  // Notified after this piece, if `last`.
  bool last = false;
  std::uint32_t credit = 0;  // Reported by MachineSink::on_sent() when the chunk has left the queue.
};

// One stream of an HTTP/2 connection, which is one call of gRPC. Reused for later streams.
struct Http2Stream {
  std::int32_t id = 0;
  std::uint32_t call = 0;  // Slot in the low 16 bits, generation in the high 16 bits.
  bool open = false;       // HTTP/2 has the stream.
  Time opened{};           // When it was opened.
  bool busy = false;       // The session uses it: it is not reused although it may be closed.
  // A client's request that waits until the server allows another stream. HTTP/2 does not have it yet, and id is 0.
  bool waiting = false;
  std::vector<std::pair<std::string, std::string>> waiting_fields;

  HeaderFields fields;
  detail::ReceiveCharge fields_charge;  // Server.
  http2::RequestRules rules;            // Server.
  bool headers_seen = false;

  // ---- Receiving ----
  // What happens to messages: the first is kept until the peer's end of the stream, each is delivered, or all are
  // dropped; or the bytes are no messages.
  enum class Take : std::uint8_t { drop, keep_one, deliver, plain };
  Take take = Take::drop;
  MessageReader reader;
  unsigned messages = 0;  // Whole messages so far; counted up to 2 with keep_one.
  Bytes message;          // With keep_one. Behind reader.room() free bytes if there is room.
  Block* message_block = nullptr;
  Buffer kept;  // Holds `message`; empty while it lies in the memory that is being received.
  detail::ReceiveCharge kept_charge;
  std::size_t held_bytes = 0;  // Credit that the receiver of the items has not given back.
  detail::ReceiveCharge stalled_charge;
  std::string stalled;        // Bytes behind the messages that are held; their window is not returned yet.
  bool unpacking = false;     // A message is decompressed elsewhere; what follows it waits in `stalled`.
  bool remote_ended = false;  // The peer has ended its direction.
  bool end_delivered = false;

  // ---- Sending ----
  std::vector<OutgoingChunk> out;  // The queued ones begin at out_first.
  std::size_t out_first = 0;
  std::size_t out_offset = 0;  // Bytes of the first chunk that have left the queue.
  std::size_t out_bytes = 0;
  std::uint64_t out_taken = 0;  // Bytes that have left the queue.
  // For checks of the client's pace: out_taken at the last one, and the number of bytes that must leave until the next.
  std::uint64_t checked_taken = 0;
  std::size_t checked_wanted = 0;
  bool headers_sent = false;  // Submitted.
  bool deferred = false;      // HTTP/2 asked for data and there was none.
  bool ending = false;        // Nothing follows `out` but the trailers, if this is a server.
  bool ended = false;         // The end was handed to HTTP/2.
  bool breaks = false;        // Behind `out` the stream is reset, since the response is not complete.
  bool resetting = false;     // RST_STREAM was handed to HTTP/2.
  bool has_loans = false;
  bool plain = false;  // The response is not gRPC: it has no trailers.
  // The whole response has been sent, and the rest of the request is discarded until its end, or a reset.
  bool discards = false;
  bool discards_long = false;  // So it was at the last look.
  std::size_t discarded_bytes = 0;
  Encoding send_encoding = Encoding::identity;
  Metadata initial;   // Sent with the response's header block.
  Metadata trailers;  // Sent with the status.
  std::string status;
  std::string status_text;  // Percent-encoded.
};

}  // namespace hawser::protocol::grpc
