#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "protocol/grpc/header_values.h"
#include "protocol/grpc/machine.h"
#include "protocol/grpc/machine_callbacks.h"

// How a machine sends.
namespace hawser::protocol::grpc {
namespace {

std::uint8_t* raw(std::string_view text) noexcept {
  return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
}

// Longest grpc-message, encoded. nginx takes 4 KiB of response headers. Clients of gRPC take 8 KiB, and fail
// some of the calls that have more.
constexpr std::size_t status_text_bytes_max = 3072;

// nghttp2 copies what is not marked as lasting.
nghttp2_nv field(std::string_view name, std::string_view value) noexcept {
  return {raw(name), raw(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}
// The name is a literal.
nghttp2_nv known(std::string_view name, std::string_view value) noexcept {
  return {raw(name), raw(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NO_COPY_NAME};
}
// Both are literals.
constexpr std::uint8_t lasting = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE;
nghttp2_nv literal(std::string_view name, std::string_view value) noexcept {
  return {raw(name), raw(value), name.size(), value.size(), lasting};
}

// A header block of a few fields, which needs no allocation for the usual ones.
class HeaderBlock {
 public:
  void add(const nghttp2_nv& one) {
    if (count_ < few_.size()) {
      few_[count_++] = one;
      return;
    }
    if (many_.empty()) many_.assign(few_.begin(), few_.end());
    many_.push_back(one);
    ++count_;
  }
  // Adds metadata; binary values are encoded, and pairs that HTTP/2 can't carry are left out.
  void add(const Metadata& metadata) {
    for (const auto& [name, value] : metadata) {
      if (!is_metadata_name(name) || is_reserved_name(name)) continue;
      if (is_binary_name(name)) {
        encoded_.push_back(std::make_unique<std::string>(base64_encode(value)));
        add(field(name, *encoded_.back()));
      } else if (is_plain_value(value)) {
        add(field(name, value));
      }
    }
  }
  const nghttp2_nv* data() const noexcept { return many_.empty() ? few_.data() : many_.data(); }
  std::size_t size() const noexcept { return count_; }

 private:
  std::array<nghttp2_nv, 12> few_;
  std::vector<nghttp2_nv> many_;
  std::size_t count_ = 0;
  std::vector<std::unique_ptr<std::string>> encoded_;
};

}  // namespace

void Http2Machine::submit_headers(Http2Stream& stream, bool end) {
  if (stream.headers_sent || !stream.open) return;
  stream.headers_sent = true;
  HeaderBlock block;
  block.add(literal(":status", "200"));
  block.add(literal("content-type", "application/grpc"));
  if (stream.send_encoding != Encoding::identity) {
    block.add(literal("grpc-encoding", to_string(stream.send_encoding)));
  }
  block.add(stream.initial);
  if (end) {
    block.add(known("grpc-status", stream.status));
    if (!stream.status_text.empty()) block.add(known("grpc-message", stream.status_text));
    if (stream.fields.encoding == Encoding::unknown) {
      block.add(literal("grpc-accept-encoding", accepted_encodings));
    }
    block.add(stream.trailers);
    stream.ended = true;
    nghttp2_submit_response(session_, stream.id, block.data(), block.size(), nullptr);
    return;
  }
  const nghttp2_data_provider provider = Callbacks::provider(stream);
  nghttp2_submit_response(session_, stream.id, block.data(), block.size(), &provider);
}

int Http2Machine::submit_trailers(Http2Stream& stream) {
  HeaderBlock block;
  block.add(known("grpc-status", stream.status));
  if (!stream.status_text.empty()) block.add(known("grpc-message", stream.status_text));
  block.add(stream.trailers);
  return nghttp2_submit_trailer(session_, stream.id, block.data(), block.size());
}

Http2Stream* Http2Machine::begin_request(std::span<const Field> fields) {
  Http2Stream* const stream = take_slot();
  if (stream == nullptr) return nullptr;
  if (waiting_count_ == 0 && may_open()) {
    if (submit_request(*stream, fields)) return stream;
    stream->open = false;
    recycle(*stream);
    return nullptr;
  }
  stream->waiting_fields.assign(fields.begin(), fields.end());
  // Requests that have ended while they waited stay in the queue at most until half of it is such requests.
  if (waiting_.size() >= 2 * waiting_count_ + 64) {
    std::erase_if(waiting_, [&](std::uint32_t call) {
      const Http2Stream* const one = find(call);
      return one == nullptr || !one->waiting;
    });
  }
  waiting_.push_back(stream->call);
  ++waiting_count_;
  stream->waiting = true;
  return stream;
}

// nghttp2 would keep a request above the limit, also one that has been cancelled, until the server allows it.
bool Http2Machine::may_open() const noexcept {
  return submitted_ < nghttp2_session_get_remote_settings(session_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

// False if the connection has no stream ids left.
bool Http2Machine::submit_request(Http2Stream& stream, std::span<const Field> fields) {
  HeaderBlock block;
  for (const Field& one : fields) block.add(field(one.first, one.second));
  const nghttp2_data_provider provider = Callbacks::provider(stream);
  const std::int32_t id = nghttp2_submit_request(session_, nullptr, block.data(), block.size(), &provider, &stream);
  if (id < 0) return false;
  stream.id = id;
  stream.headers_sent = true;
  ++submitted_;
  return true;
}

void Http2Machine::open_waiting() {
  while (waiting_count_ != 0 && may_open()) {
    Http2Stream* const stream = find(waiting_.front());
    waiting_.pop_front();
    if (stream == nullptr || !stream->waiting) continue;
    const std::vector<std::pair<std::string, std::string>> kept = std::exchange(stream->waiting_fields, {});
    const std::vector<Field> fields(kept.begin(), kept.end());
    if (!submit_request(*stream, fields)) return refuse_waiting();
    stream->waiting = false;
    --waiting_count_;
  }
}

void Http2Machine::refuse_waiting() {
  for_each([&](Http2Stream& stream) {
    if (stream.waiting) close_stream(stream, NGHTTP2_REFUSED_STREAM);
  });
  waiting_.clear();
}

void Http2Machine::send_headers(Http2Stream& stream) { submit_headers(stream, false); }

void Http2Machine::send_message(Http2Stream& stream, Buffer head, std::span<const ConstBuffer> pieces,
                                SendCompletion* owner, std::uint32_t credit) {
  if (!stream.open || stream.ending) {
    if (owner != nullptr) owner->on_send_complete();
    return;
  }
  std::size_t bytes = head.size();
  stream.out.push_back({.own = std::move(head), .loan = {}});
  for (const ConstBuffer& piece : pieces) {
    if (piece.size == 0) continue;
    bytes += piece.size;
    if (owner == nullptr) {
      stream.out.push_back({.own = Buffer::copy_of(Bytes(piece.data, piece.size)), .loan = {}});
    } else {
      stream.out.push_back({.own = {}, .loan = piece, .owner = owner});
      stream.has_loans = true;
    }
  }
  stream.out.back().credit = credit;
  stream.out_bytes += bytes;
  waiting_bytes_ += bytes;
  if (owner != nullptr) {
    if (stream.out.back().owner == owner) {
      stream.out.back().last = true;
    } else {
      owner->on_send_complete();
    }
  }
  if (options_.server) submit_headers(stream, false);
  resume(stream);
}

void Http2Machine::resume(Http2Stream& stream) {
  if (std::exchange(stream.deferred, false)) nghttp2_session_resume_data(session_, stream.id);
}

void Http2Machine::send_status(Http2Stream& stream, int status, std::string_view text) {
  if (!stream.open || stream.ending) return;
  stream.ending = true;
  stream.status = std::to_string(status);
  stream.status_text = percent_encode(text, status_text_bytes_max);
  if (!stream.headers_sent) return submit_headers(stream, true);
  resume(stream);
}

void Http2Machine::send_http_status(Http2Stream& stream, int http_status) {
  if (!stream.open || stream.headers_sent) return;
  stream.headers_sent = stream.ending = stream.ended = true;
  const std::string number = std::to_string(http_status);
  const nghttp2_nv block = known(":status", number);
  nghttp2_submit_response(session_, stream.id, &block, 1, nullptr);
}

void Http2Machine::send_plain_head(Http2Stream& stream, unsigned http_status, std::span<const Field> fields, bool end) {
  if (!stream.open || stream.headers_sent) return;
  const std::string number = std::to_string(http_status);
  HeaderBlock block;
  block.add(known(":status", number));
  for (const Field& one : fields) block.add(field(one.first, one.second));
  const nghttp2_data_provider provider = Callbacks::provider(stream);
  const int status =
      nghttp2_submit_response(session_, stream.id, block.data(), block.size(), end ? nullptr : &provider);
  if (status == NGHTTP2_ERR_NOMEM) throw std::bad_alloc();
  stream.headers_sent = true;
  stream.plain = true;
  if (end) stream.ending = stream.ended = true;
}

void Http2Machine::send_interim(Http2Stream& stream, unsigned http_status) {
  if (!stream.open || stream.headers_sent) return;
  const std::string number = std::to_string(http_status);
  const nghttp2_nv block = known(":status", number);
  nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, stream.id, nullptr, &block, 1, nullptr);
}

void Http2Machine::send_end(Http2Stream& stream) {
  if (!stream.open || stream.ending) return;
  stream.ending = true;
  resume(stream);
}

bool Http2Machine::break_off(Http2Stream& stream) {
  if (!stream.open || stream.ending || stream.resetting) return false;
  stream.ending = stream.breaks = true;
  resume(stream);
  return true;
}

bool Http2Machine::reset(Http2Stream& stream, std::uint32_t http2_code) {
  if (!stream.open || std::exchange(stream.resetting, true)) return false;
  if (stream.waiting) {
    close_stream(stream, http2_code);
  } else {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream.id, http2_code);
  }
  return true;
}

// Moves the next `bytes` bytes of the stream to the output, behind the header of their frame.
void Http2Machine::send_piece(Http2Stream& stream, std::size_t bytes) {
  stream.out_bytes -= bytes;
  waiting_bytes_ -= bytes;
  data_sent_ += bytes;
  stream.out_taken += bytes;
  std::uint32_t credit = 0;
  while (bytes != 0) {
    OutgoingChunk& chunk = stream.out[stream.out_first];
    const bool loaned = chunk.owner != nullptr;
    const Bytes rest =
        (loaned ? Bytes(chunk.loan.data, chunk.loan.size) : chunk.own.bytes()).subspan(stream.out_offset);
    const std::size_t part = std::min(bytes, rest.size());
    const bool whole = part == rest.size();
    if (loaned) {
      if (part != 0) output_.borrow_part({rest.data(), part}, *chunk.owner, whole && chunk.last);
    } else if (part <= copied_bytes_max) {
      if (part != 0) {
        std::memcpy(output_.reserve(part), rest.data(), part);
        output_.commit(part);
      }
    } else {
      output_.share(chunk.own.slice(stream.out_offset, part));
    }
    bytes -= part;
    if (!whole) {
      stream.out_offset += part;
      break;
    }
    credit += chunk.credit;
    chunk = {};
    stream.out_offset = 0;
    ++stream.out_first;
  }
  if (stream.out_first == stream.out.size()) {
    stream.out.clear();
    stream.out_first = 0;
    stream.has_loans = false;
  }
  if (credit != 0) sink_.on_sent(stream, credit);
}

void Http2Machine::drop_output(Http2Stream& stream) noexcept {
  waiting_bytes_ -= stream.out_bytes;
  stream.out_bytes = 0;
  const std::size_t first = stream.out_first;
  for (std::size_t i = first; i < stream.out.size(); ++i) {
    OutgoingChunk& chunk = stream.out[i];
    if (chunk.owner == nullptr || !chunk.last) continue;
    // Earlier parts of the owner's memory may be in the output.
    try {
      output_.copy_and_release(*chunk.owner);
    } catch (const std::bad_alloc&) {
      output_.clear();  // There is no memory, so the connection ends.
      failure_.emplace();
      failure_->scope = ErrorScope::connection;
    }
    chunk.owner->on_send_complete();
  }
  stream.out.clear();
  stream.out_first = stream.out_offset = 0;
  stream.has_loans = false;
}

void Http2Machine::copy_and_release(SendCompletion& owner) {
  output_.copy_and_release(owner);
  for_each([&](Http2Stream& stream) {
    if (!stream.has_loans) return;
    for (std::size_t i = stream.out_first; i < stream.out.size(); ++i) {
      OutgoingChunk& chunk = stream.out[i];
      if (chunk.owner != &owner) continue;
      chunk.own = Buffer::copy_of(Bytes(chunk.loan.data, chunk.loan.size));
      chunk.owner = nullptr;
      chunk.last = false;
    }
  });
}

void Http2Machine::pump() {
  if (waiting_count_ != 0) open_waiting();
  while (output_.bytes() < ahead_bytes) {
    const std::uint8_t* data = nullptr;
    const auto bytes = nghttp2_session_mem_send(session_, &data);
    if (bytes < 0 && !failure_) {
      failure_ = Error::of_connection(bytes == NGHTTP2_ERR_NOMEM ? ErrorCode::internal : ErrorCode::protocol_error,
                                      "HTTP/2: " + std::string(nghttp2_strerror(static_cast<int>(bytes))));
    }
    if (bytes <= 0) break;
    std::memcpy(output_.reserve(static_cast<std::size_t>(bytes)), data, static_cast<std::size_t>(bytes));
    output_.commit(static_cast<std::size_t>(bytes));
  }
}

}  // namespace hawser::protocol::grpc
