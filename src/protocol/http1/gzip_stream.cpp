#include "protocol/http1/gzip_stream.h"

#include <algorithm>
#include <new>
#include <utility>

#include "protocol/http1/incoming_body.h"
#ifdef HAWSER_HTTP_GZIP
#include <zlib.h>
#endif

namespace hawser::http1 {

#ifdef HAWSER_HTTP_GZIP

namespace {

constexpr int gzip_format = 16;  // Added to the logarithm of the window.
// deflate() holds 2^(window + 2) + 2^(level + 9) bytes, and about 6 KiB.
constexpr int deflate_window_bits = 13;
constexpr int deflate_memory_level = 6;
static_assert((std::size_t{1} << (deflate_window_bits + 2)) + (std::size_t{1} << (deflate_memory_level + 9)) +
                  8 * 1024 <=
              Deflater::memory_bytes);
constexpr int inflate_window_bits = 15;

void show(z_stream& stream, Bytes in) noexcept {
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
  stream.avail_in = static_cast<uInt>(in.size());
}

}  // namespace

struct Deflater::State {
  ~State() {
    if (ready) deflateEnd(&stream);
  }
  z_stream stream{};
  bool ready = false;
};
struct Inflater::State {
  ~State() {
    if (ready) inflateEnd(&stream);
  }
  z_stream stream{};
  bool ready = false;
};

std::unique_ptr<Deflater> Deflater::make(detail::ReceiveAccount* account) {
  detail::ReceiveCharge charge;
  if (account != nullptr && (!leaves_rest(*account, memory_bytes) || !charge.add(*account, memory_bytes)))
    return nullptr;
  auto state = std::make_unique<State>();
  state->ready = deflateInit2(&state->stream, Z_BEST_SPEED, Z_DEFLATED, deflate_window_bits + gzip_format,
                              deflate_memory_level, Z_DEFAULT_STRATEGY) == Z_OK;
  if (!state->ready) return nullptr;
  std::unique_ptr<Deflater> made(new Deflater(std::move(state)));
  made->charge_ = std::move(charge);
  return made;
}

std::string Deflater::add(Bytes bytes, Flush flush) {
  z_stream& stream = state_->stream;
  show(stream, bytes);
  // An output that is exactly full would be followed by a second mark of the flush.
  constexpr std::size_t flush_bytes = 64;
  const int mode = flush == Flush::none ? Z_NO_FLUSH : flush == Flush::part ? Z_SYNC_FLUSH : Z_FINISH;
  std::string out;
  for (;;) {
    const std::size_t size = out.size();
    const std::size_t room = deflateBound(&stream, stream.avail_in) + flush_bytes;
    out.resize(size + room);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + size);
    stream.avail_out = static_cast<uInt>(room);
    deflate(&stream, mode);
    out.resize(out.size() - stream.avail_out);
    if (stream.avail_out != 0) return out;
  }
}

std::unique_ptr<Inflater> Inflater::make() {
  auto state = std::make_unique<State>();
  state->ready = inflateInit2(&state->stream, inflate_window_bits + gzip_format) == Z_OK;
  if (!state->ready) return nullptr;
  return std::unique_ptr<Inflater>(new Inflater(std::move(state)));
}

Result<std::string> Inflater::next(std::size_t bytes_max) {
  z_stream& stream = state_->stream;
  std::string out;
  while (!wants_input() && !error_ && out.size() < bytes_max) {
    if (between_members_) {
      if (used_ == input_.size()) break;
      // Each further member consumes at least 18 bytes of the input.
      inflateReset(&stream);
      between_members_ = false;
    }
    const Bytes in = as_bytes(std::string_view(input_).substr(used_));
    const std::size_t size = out.size();
    // Most parts become a few times as long. The memory grows with what appears.
    const std::size_t room = std::min(bytes_max - size, std::max<std::size_t>(4 * in.size(), 4096));
    out.resize(size + room);
    show(stream, in);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + size);
    stream.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream, Z_NO_FLUSH);
    used_ += in.size() - stream.avail_in;
    out.resize(out.size() - stream.avail_out);
    more_ = stream.avail_out == 0 && status != Z_STREAM_END;
    if (status == Z_STREAM_END) {
      between_members_ = true;
    } else if (status == Z_MEM_ERROR) {
      error_ = Error::of_call(ErrorCode::overloaded, "no memory to decompress the body");
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      error_ = Error::of_call(Initiator::peer, ErrorCode::protocol_error, "the body is not a valid gzip");
    }
  }
  if (error_ && out.empty()) return fail(*error_);
  return out;
}

#else

struct Deflater::State {};
struct Inflater::State {};
std::unique_ptr<Deflater> Deflater::make(detail::ReceiveAccount*) { return nullptr; }
std::string Deflater::add(Bytes, Flush) { return {}; }
std::unique_ptr<Inflater> Inflater::make() { return nullptr; }
Result<std::string> Inflater::next(std::size_t) { return fail(ErrorCode::internal, "built without zlib"); }

#endif

Deflater::Deflater(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Deflater::~Deflater() = default;
Inflater::Inflater(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Inflater::~Inflater() = default;

void Inflater::give(std::string compressed) noexcept {
  input_ = std::move(compressed);
  used_ = 0;
}

}  // namespace hawser::http1
