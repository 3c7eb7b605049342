#include "compress/deflate.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace hawser::compress {

struct ZlibState {
  z_stream stream{};
};

namespace {

constexpr int window_bits_max = 15;

// The value by which zlib selects window and format.
int window_of(Format format, int window_bits) noexcept {
  constexpr int gzip = 16;
  return window_bits + (format == Format::gzip ? gzip : 0);
}

uInt counted(std::size_t bytes) noexcept {
  return static_cast<uInt>(std::min<std::size_t>(bytes, std::numeric_limits<uInt>::max()));
}

void show(z_stream& stream, Bytes in) noexcept {
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
  stream.avail_in = counted(in.size());
}

}  // namespace

Inflater::Inflater(Format format) noexcept : state_(new(std::nothrow) ZlibState) {
  if (state_ != nullptr && inflateInit2(&state_->stream, window_of(format, window_bits_max)) != Z_OK) state_.reset();
}

Inflater::~Inflater() {
  if (state_ != nullptr) inflateEnd(&state_->stream);
}

Inflater::Step Inflater::step(Bytes in, std::span<std::byte> out) noexcept {
  if (state_ == nullptr) return {.status = Status::no_memory};
  z_stream& stream = state_->stream;
  show(stream, in);
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = counted(out.size());
  const uInt in_before = stream.avail_in;
  const uInt out_before = stream.avail_out;
  const int status = inflate(&stream, Z_NO_FLUSH);
  Step step{.read = in_before - stream.avail_in, .written = out_before - stream.avail_out};
  if (status == Z_STREAM_END) {
    step.status = Status::end;
  } else if (status == Z_MEM_ERROR) {
    step.status = Status::no_memory;
  } else if (status != Z_OK && status != Z_BUF_ERROR) {
    step.status = Status::malformed;
  }
  return step;
}

void Inflater::restart() noexcept {
  if (state_ != nullptr) inflateReset(&state_->stream);
}

Deflater::Deflater(const DeflaterOptions& options) noexcept : state_(new(std::nothrow) ZlibState) {
  if (state_ == nullptr) return;
  const int level = options.fast ? Z_BEST_SPEED : Z_DEFAULT_COMPRESSION;
  if (deflateInit2(&state_->stream, level, Z_DEFLATED, window_of(options.format, options.window_bits),
                   options.memory_level, Z_DEFAULT_STRATEGY) != Z_OK) {
    state_.reset();
  }
}

Deflater::~Deflater() {
  if (state_ != nullptr) deflateEnd(&state_->stream);
}

void Deflater::add(Bytes in, Flush flush, std::string& out) {
  z_stream& stream = state_->stream;
  // An output that is exactly full would be followed by a second mark of the flush.
  constexpr std::size_t flush_bytes = 64;
  const int mode = flush == Flush::none ? Z_NO_FLUSH : flush == Flush::part ? Z_SYNC_FLUSH : Z_FINISH;
  for (;;) {
    show(stream, in);
    const uInt shown = stream.avail_in;
    const bool last = shown == in.size();
    const std::size_t size = out.size();
    const uInt room = counted(deflateBound(&stream, shown) + flush_bytes);
    out.resize(size + room);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + size);
    stream.avail_out = room;
    deflate(&stream, last ? mode : Z_NO_FLUSH);
    out.resize(out.size() - stream.avail_out);
    in = in.subspan(shown - stream.avail_in);
    if (last && stream.avail_out != 0) return;
  }
}

Buffer Deflater::all(Bytes in) {
  z_stream& stream = state_->stream;
  Buffer out = Buffer::allocate(deflateBound(&stream, in.size()));
  std::size_t used = 0;
  for (;;) {
    show(stream, in);
    const uInt shown = stream.avail_in;
    const uInt room = counted(out.size() - used);
    stream.next_out = reinterpret_cast<Bytef*>(out.mutable_data() + used);
    stream.avail_out = room;
    const int status = deflate(&stream, shown == in.size() ? Z_FINISH : Z_NO_FLUSH);
    used += room - stream.avail_out;
    in = in.subspan(shown - stream.avail_in);
    if (status != Z_OK) return out.slice(0, used);
  }
}

Unpacked inflate_all(Format format, Bytes in, GrowingOutput out) {
  Inflater inflater(format);
  for (;;) {
    if (!out.allowed()) return {.problem = Problem::no_memory};
    // One byte more than the limit shows that the output is too large.
    std::byte spare{};
    const bool over = out.full();
    const std::span<std::byte> room = over ? std::span(&spare, 1) : std::span(out.end(), out.room());
    const Inflater::Step step = inflater.step(in, room);
    in = in.subspan(step.read);
    if (over && step.written != 0) return {.problem = Problem::too_large};
    if (!over) out.add(step.written);
    switch (step.status) {
      case Inflater::Status::end:
        if (!in.empty()) return {.problem = Problem::malformed};
        return {.data = out.take()};
      case Inflater::Status::malformed: return {.problem = Problem::malformed};
      case Inflater::Status::no_memory: return {.problem = Problem::no_memory};
      case Inflater::Status::more: break;
    }
    // There is room, and no more input: the end is missing.
    const bool stuck = step.read == 0 && step.written == 0;
    if (stuck || (step.written < room.size() && in.empty())) return {.problem = Problem::malformed};
    if (out.full() && !out.at_limit()) out.grow();
  }
}

}  // namespace hawser::compress
