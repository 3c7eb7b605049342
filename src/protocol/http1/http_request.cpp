#include "protocol/http1/request_access.h"
#include "protocol/http1/route_responder.h"

namespace hawser {

HttpRequest::HttpRequest(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
HttpRequest::~HttpRequest() = default;

std::string_view HttpRequest::method() const noexcept { return state_->head->method; }
std::string_view HttpRequest::path() const noexcept { return state_->head->path; }
std::string_view HttpRequest::query() const noexcept { return state_->head->query; }
std::optional<std::string_view> HttpRequest::header(std::string_view name) const noexcept {
  return state_->head->field(name);
}
std::optional<std::string_view> HttpRequest::parameter(std::string_view name) const noexcept {
  return http1::path_parameter(state_->pattern, state_->head->path, name);
}
Bytes HttpRequest::body() const noexcept { return state_->call.request().body; }
std::string HttpRequest::peer() const { return state_->call.sink().peer(); }
const Identity& HttpRequest::identity() const noexcept { return state_->call.sink().identity(); }
Loop& HttpRequest::loop() const noexcept { return state_->call.sink().loop(); }
std::stop_token HttpRequest::token() { return state_->call.token(); }
std::optional<Time> HttpRequest::deadline() const noexcept { return state_->call.request().deadline; }

Task<Result<void>> HttpBodyWriter::write(std::string_view bytes) {
  return http1::RouteResponder::send_part(*this, bytes);
}
Task<Result<void>> HttpBodyWriter::write_kept(std::string bytes) {
  auto writing = http1::RouteResponder::send_part(*this, bytes);
  co_return co_await std::move(writing);
}

Task<Result<std::string>> HttpBodyReader::read() { return responder_.read_part(*this); }

}  // namespace hawser
