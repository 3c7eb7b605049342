#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/detail/reply_sink.h"
#include "hawser/http.h"
#include "rpc/port/port_host.h"

namespace hawser::protocol::http {

class BodyDeflater;

// Answers the calls of routes: a connection of HTTP/1, or a stream of HTTP/2.
class RouteResponder {
 public:
  virtual detail::ReplySink& sink() noexcept = 0;
  virtual const rpc::ServerInterceptors& interceptors() noexcept = 0;
  virtual const HttpOptions& http_options() const noexcept = 0;
  virtual void reply_route(std::uint32_t call, const HttpResponse& response) = 0;
  // For a response that has a `stream`. The caller owns `response` until the end.
  virtual Task<void> stream_route(std::uint32_t call, const HttpRequest& request, const HttpResponse& response) = 0;
  virtual Task<Result<void>> write_part(HttpBodyWriter& writer, std::string_view bytes) = 0;
  virtual Task<Result<std::string>> read_part(HttpBodyReader& reader) = 0;
  // The writers of the response wait when more than `bytes` of it wait to be sent, instead of
  // send_backlog_bytes_max.
  virtual void limit_queue(std::size_t bytes) = 0;
  static void limit_queue(HttpBodyWriter& writer, std::size_t bytes) { writer.responder_.limit_queue(bytes); }
  // Runs the stream of a response with a writer that compresses what it is given. `stream` and `deflater` outlive the
  // task.
  static Task<void> stream_compressed(HttpBodyWriter& writer, const std::function<Task<void>(HttpBodyWriter&)>& stream,
                                      BodyDeflater& deflater);
  // Sends a part; compressed if the writer does that.
  static Task<Result<void>> send_part(HttpBodyWriter& writer, std::string_view bytes);
  HttpBodyReader reader_for(std::uint32_t call, std::stop_token token) noexcept {
    return {*this, call, std::move(token)};
  }

 protected:
  // A writer that never has to wait lets the rest of its loop run after this number of bytes.
  static constexpr std::size_t turn_bytes_max = 256 * 1024;

  ~RouteResponder() = default;
  static Task<Result<void>> write_compressed(HttpBodyWriter& writer, std::string_view bytes);
  HttpBodyWriter writer_for(std::uint32_t call, bool chunked) noexcept { return {*this, call, chunked}; }
  // The number of bytes that the writer may still write, if it was announced.
  static std::optional<std::uint64_t>& left_of(HttpBodyWriter& writer) noexcept { return writer.left_; }
  static std::uint32_t call_of(const HttpBodyWriter& writer) noexcept { return writer.call_; }
  static std::uint32_t call_of(const HttpBodyReader& reader) noexcept { return reader.call_; }
  static const std::stop_token& token_of(const HttpBodyReader& reader) noexcept { return reader.token_; }
  static bool chunked(const HttpBodyWriter& writer) noexcept { return writer.chunked_; }
  static std::size_t& turn_bytes(HttpBodyWriter& writer) noexcept { return writer.turn_bytes_; }
};

// ReplySink::exception_error() for a request to a route: the line has the trace of its header.
Error route_error(detail::ReplySink& sink, const HttpRequest& request, std::string_view name, std::string_view part,
                  std::string text);

}  // namespace hawser::protocol::http
