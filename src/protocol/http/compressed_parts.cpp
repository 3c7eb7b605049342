#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "protocol/http/gzip.h"
#include "protocol/http/gzip_stream.h"
#include "protocol/http/route_responder.h"

// Responses that are sent in parts and compressed.
namespace hawser::protocol::http {
namespace {

// Each flush costs the loop about as much as so many bytes.
constexpr std::size_t flush_cost = 512;

Task<Result<void>> refuse_part(std::uint64_t left) {
  co_return fail(ErrorCode::limit_exceeded,
                 "the part is longer than the " + std::to_string(left) +
                     " bytes that are left of HttpResponse::stream_bytes: write no more than was announced");
}

}  // namespace

Task<Result<void>> RouteResponder::send_part(HttpBodyWriter& writer, std::string_view bytes) {
  if (writer.left_) {
    if (bytes.size() > *writer.left_) return refuse_part(*writer.left_);
    *writer.left_ -= bytes.size();
  }
  const bool compresses = writer.deflater_ != nullptr && !bytes.empty();
  return compresses ? write_compressed(writer, bytes) : writer.responder_.write_part(writer, bytes);
}

// A long part is cut, so that the loop runs something else in between.
Task<Result<void>> RouteResponder::write_compressed(HttpBodyWriter& writer, std::string_view bytes) {
  BodyDeflater& deflater = *writer.deflater_;
  const Permit turn = co_await deflater.writing.lock();
  while (!bytes.empty()) {
    if (deflater.turn_bytes >= gzip_in_place_max) {
      co_await writer.responder_.sink().loop().sleep(Duration::zero());
      deflater.turn_bytes = 0;
    }
    const std::string_view piece = bytes.substr(0, gzip_in_place_max);
    bytes.remove_prefix(piece.size());
    deflater.turn_bytes += piece.size() + flush_cost;
    const std::string packed =
        deflater.add(as_bytes(piece), bytes.empty() ? BodyDeflater::Flush::part : BodyDeflater::Flush::none);
    CO_TRY(co_await writer.responder_.write_part(writer, packed));
  }
  co_return Result<void>();
}

Task<void> RouteResponder::stream_compressed(HttpBodyWriter& writer,
                                             const std::function<Task<void>(HttpBodyWriter&)>& stream,
                                             BodyDeflater& deflater) {
  writer.deflater_ = &deflater;
  co_await stream(writer);
  writer.deflater_ = nullptr;
  const std::string end = deflater.add({}, BodyDeflater::Flush::end);
  static_cast<void>(co_await writer.responder_.write_part(writer, end));  // Fails if the client has gone.
}

}  // namespace hawser::protocol::http
