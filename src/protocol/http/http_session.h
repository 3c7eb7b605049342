#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "exec/condition.h"
#include "hawser/http.h"
#include "hawser/scope.h"
#include "protocol/http/collected_body.h"
#include "protocol/http/incoming_body.h"
#include "protocol/http/kept_head.h"
#include "protocol/http/output_pace.h"
#include "protocol/http/request_parser.h"
#include "protocol/http/request_phase.h"
#include "protocol/http/request_plan.h"
#include "protocol/http/response.h"
#include "protocol/http/route_responder.h"
#include "rpc/port/byte_session.h"

namespace hawser::protocol::http {

// The server's end of an HTTP/1 connection. It executes one request after another; further requests that the client has
// sent wait in the kernel, apart from ahead_bytes_max bytes.
class HttpSession final : public rpc::ByteSession, public RouteResponder {
 public:
  HttpSession(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first, const Served& served);

  // ---- PortSession ----
  void go_away() override;
  bool leave() override;

  // ---- detail::ReplySink ----
  std::string_view protocol() const noexcept override { return "http"; }
  std::byte* begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                         const detail::ReplyExtras& extras) override;
  void end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void reply_error(std::uint32_t call, const Error& error) override;
  // Methods with streams are not served.
  std::shared_ptr<detail::StreamCore> open_stream(std::uint32_t) override { return nullptr; }

  // ---- RouteResponder ----
  detail::ReplySink& sink() noexcept override { return *this; }
  const rpc::ServerInterceptors& interceptors() noexcept override { return host().interceptors; }
  const HttpOptions& http_options() const noexcept override { return served_.options; }
  void reply_route(std::uint32_t call, const HttpResponse& response) override;
  Task<void> stream_route(std::uint32_t call, const HttpRequest& request, const HttpResponse& response) override;
  Task<Result<void>> write_part(HttpBodyWriter& writer, std::string_view bytes) override;
  Task<Result<std::string>> read_part(HttpBodyReader& reader) override;
  void limit_queue(std::size_t bytes) override { limit_backlog(bytes); }

 private:
  using Phase = RequestPhase::Kind;
  // How the server wants to end the connection. `with_response`: the client reads it in the next response.
  enum class Going : std::uint8_t { no, with_response, at_once };
  using Kind = RequestPlan::Kind;
  // The form that the response to the present request must have.
  struct ResponseForm {
    unsigned minor = 1;  // The version is HTTP/1.minor.
    bool keep_alive = true;
    bool head_only = false;  // A response to HEAD.
    bool followed = false;   // The first bytes of the next request had come with the last ones of this one.
    // The last response of the connection, which has a body in any case.
    void make_last() noexcept {
      keep_alive = false;
      head_only = false;
    }
  };
  // The answer to the present request, as far as it exists.
  struct Answer {
    bool head_sent = false;          // The head may be queued: no other response can follow.
    Buffer json;                     // The encoded result, if it is to become JSON.
    std::size_t reserved_bytes = 0;  // Bytes of the head and the body that begin_reply() has reserved.
    std::size_t attachment_bytes = 0;
  };

  std::size_t take(Bytes bytes, Block& block) override;
  MutableBytes direct_space() override;
  void direct_received(std::size_t bytes) override;
  // A client that is not asked for the next part of a body is not slow.
  bool receiving() const noexcept override {
    return phase_.is(Phase::head) || phase_.is(Phase::body) || (parts_.reading && !parts_.ended);
  }
  bool answer_slow(const Error& why) override;
  Duration half_closed_max() const noexcept override { return served_.options.half_closed_timeout; }
  void on_end(const Error& reason) override;
  void on_drained() override { room_.notify_all(); }
  // Begins the head of a route's response. False if the status can't be: the request has been answered then.
  bool begin_route(std::uint32_t call, const HttpResponse& response);
  void on_no_calls() override;

  void set_phase(Phase phase) noexcept;
  void check_phase();
  // False if the request was refused at once and nothing more is read.
  bool on_head(Bytes head, Bytes rest);
  // `followed`: the first bytes of the next request have come with the last ones of this one.
  void on_request_end(bool followed) noexcept;
  bool grow_body(std::size_t bytes);
  void append_body(Bytes bytes);
  // The body of a request whose route reads it in parts.
  void take_part(Bytes bytes);
  void end_parts();
  void begin_parts_route();
  // Sends 100 (Continue) if the client waits for it.
  void ask_for_body();
  // True, after an answer, if the body is longer than message_bytes_max.
  bool refuse_too_long(std::uint64_t bytes);
  void on_parse_error();
  void on_request(const RequestHead& head, Bytes head_bytes, Bytes body, Block* block);
  // Takes the id of the next call, and holds.
  std::uint32_t begin_call() noexcept;
  void run_method(const RequestHead& head, Bytes body, Block* block, const rpc::BodyForm& form);
  void run_route(const RequestHead& head, Bytes head_bytes, Bytes body, Block* block, const rpc::BodyForm& form);
  // Converts a long result on another thread, while the session holds. Ends early if the connection does.
  Task<void> convert_result(std::vector<std::byte> payload);
  void reply_json(const Result<JsonText>& json);
  detail::IncomingRequest incoming(const RequestHead& head, Bytes body, Block* block);
  void refuse(unsigned status, const Error& error, std::string_view allow = {});
  void respond(unsigned status, std::string_view type, std::string_view body, std::string_view allow = {});
  bool begin_answer(std::uint32_t call);
  // Ends a response whose stream did not complete it, and the connection. `shows`: the client sees by the framing of
  // the body that it is not complete.
  void break_off(std::uint32_t call, bool shows, std::string why);
  void begin_head(unsigned status);
  void end_answer();

  const Served served_;
  RequestParser parser_;
  ResponseWriter writer_;

  RequestPhase phase_;
  MemberTimer<&HttpSession::check_phase> timer_;
  Going going_ = Going::no;
  OutputPace pace_;

  // The present request.
  RequestPlan plan_;
  KeptHead kept_head_;        // While a body is received in parts.
  CollectedBody body_{4096};  // The body, if it arrives in parts and no route reads them.
  bool collects_ = false;     // The body is received in parts.
  IncomingBody parts_;        // The body, if its route reads it in parts.
  ResponseForm form_;
  CallFields call_fields_;

  std::uint32_t call_ = 0;  // Id of the call that is not answered; 0: none.
  std::uint16_t generation_ = 0;
  Answer answer_;
  exec::Condition room_;  // Notified when a writer may go on, and when the connection has ended.
  std::stop_source conversion_stop_ = std::stop_source(std::nostopstate);
  Scope conversion_;  // Its task works for the present request.
};

}  // namespace hawser::protocol::http
