#include "protocol/http/gzip_stream.h"

#include <algorithm>
#include <span>
#include <utility>

#include "protocol/http/incoming_body.h"

namespace hawser::protocol::http {

#ifdef HAWSER_HTTP_GZIP

namespace {

constexpr compress::DeflaterOptions part_options = {.window_bits = 13, .memory_level = 6};
static_assert((std::size_t{1} << (part_options.window_bits + 2)) + (std::size_t{1} << (part_options.memory_level + 9)) +
                  8 * 1024 <=
              BodyDeflater::memory_bytes);

}  // namespace

struct BodyDeflater::State {
  compress::Deflater deflater{part_options};
};
struct BodyInflater::State {
  compress::Inflater inflater{compress::Format::gzip};
};

std::unique_ptr<BodyDeflater> BodyDeflater::make(detail::ReceiveAccount* account) {
  detail::ReceiveCharge charge;
  if (account != nullptr && (!leaves_rest(*account, memory_bytes) || !charge.add(*account, memory_bytes)))
    return nullptr;
  auto state = std::make_unique<State>();
  if (!state->deflater.ready()) return nullptr;
  std::unique_ptr<BodyDeflater> made(new BodyDeflater(std::move(state)));
  made->charge_ = std::move(charge);
  return made;
}

std::string BodyDeflater::add(Bytes bytes, Flush flush) {
  std::string out;
  state_->deflater.add(bytes, flush, out);
  return out;
}

std::unique_ptr<BodyInflater> BodyInflater::make() {
  auto state = std::make_unique<State>();
  if (!state->inflater.ready()) return nullptr;
  return std::unique_ptr<BodyInflater>(new BodyInflater(std::move(state)));
}

Result<std::string> BodyInflater::next(std::size_t bytes_max) {
  using Status = compress::Inflater::Status;
  constexpr std::size_t members_max = 256;
  std::string out;
  for (std::size_t members = 0; !wants_input() && !error_ && out.size() < bytes_max;) {
    if (between_members_) {
      // A member may be empty and has at least 18 bytes. Others want to run between millions of them.
      if (used_ == input_.size() || members++ == members_max) break;
      state_->inflater.restart();
      between_members_ = false;
    }
    const Bytes in = as_bytes(std::string_view(input_).substr(used_));
    const std::size_t size = out.size();
    // Most parts become a few times as long. The memory grows with what appears.
    const std::size_t room = std::min(bytes_max - size, std::max<std::size_t>(4 * in.size(), 4096));
    compress::Inflater::Step step;
    out.resize_and_overwrite(size + room, [&](char* begin, std::size_t) {
      step = state_->inflater.step(in, std::as_writable_bytes(std::span(begin + size, room)));
      return size + step.written;
    });
    used_ += step.read;
    more_ = step.written == room && step.status != Status::end;
    if (step.status == Status::end) {
      between_members_ = true;
    } else if (step.status == Status::no_memory) {
      error_ = Error::of_call(ErrorCode::overloaded, "no memory to decompress the body");
    } else if (step.status == Status::malformed) {
      error_ = Error::of_call(Initiator::peer, ErrorCode::protocol_error, "the body is not a valid gzip");
    }
  }
  if (error_ && out.empty()) return fail(*error_);
  return out;
}

#else

struct BodyDeflater::State {};
struct BodyInflater::State {};
std::unique_ptr<BodyDeflater> BodyDeflater::make(detail::ReceiveAccount*) { return nullptr; }
std::string BodyDeflater::add(Bytes, Flush) { return {}; }
std::unique_ptr<BodyInflater> BodyInflater::make() { return nullptr; }
Result<std::string> BodyInflater::next(std::size_t) { return fail(ErrorCode::internal, "built without zlib"); }

#endif

BodyDeflater::BodyDeflater(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
BodyDeflater::~BodyDeflater() = default;
BodyInflater::BodyInflater(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
BodyInflater::~BodyInflater() = default;

void BodyInflater::give(std::string compressed) noexcept {
  input_ = std::move(compressed);
  used_ = 0;
}

}  // namespace hawser::protocol::http
