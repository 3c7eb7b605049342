#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "exec/condition.h"
#include "hawser/http.h"
#include "hawser/scope.h"
#include "protocol/http/collected_body.h"
#include "protocol/http/incoming_body.h"
#include "protocol/http/kept_head.h"
#include "protocol/http/request_plan.h"
#include "protocol/http/route_responder.h"
#include "protocol/http/stream_head.h"
#include "rpc/port/http_streams.h"

namespace hawser::protocol::http {

class StreamExchanges;

// A request on a stream of HTTP/2: the sink of its call. Reused for later requests. Loop's thread only.
class StreamExchange final : public rpc::HttpExchange,
                             public detail::ReplySink,
                             RouteResponder,
                             rpc::HttpStreamHost::Route {
 public:
  explicit StreamExchange(StreamExchanges& owner);
  StreamExchange(const StreamExchange&) = delete;
  StreamExchange& operator=(const StreamExchange&) = delete;
  ~StreamExchange() = default;

  // False if the request has been answered.
  bool begin(std::uint32_t call, const rpc::HttpStreamHead& head);

  // ---- rpc::HttpExchange ----
  std::size_t on_body(Bytes bytes) override;
  bool receives() const noexcept override { return !parts_.active || (parts_.reading && !parts_.ended); }
  void on_end() override;
  void begin_late() override;
  void on_gone() override;
  void on_sent() override { room_.notify_all(); }
  void fail_call(const Error& error) override { reply_error(call_, error); }

  // ---- detail::ReplySink ----
  Loop& loop() noexcept override { return connection().loop(); }
  std::string peer() const override { return host_.connection().peer(); }
  const Identity& identity() const noexcept override { return host_.connection().identity(); }
  std::string_view protocol() const noexcept override { return "http"; }
  detail::ReplySink& origin() noexcept override { return connection(); }
  std::byte* begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                         const detail::ReplyExtras& extras) override;
  void end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void reply_error(std::uint32_t call, const Error& error) override;
  Error exception_error(MetadataView metadata, std::string_view method, std::string_view part,
                        std::string text) override {
    return connection().exception_error(metadata, method, part, std::move(text));
  }
  void refuse_unkept(std::uint32_t call) override { reply_error(call, host_.no_memory()); }
  void fail_connection() noexcept override { connection().fail_connection(); }
  void enter(detail::ActiveCall& call) override;
  void leave(detail::ActiveCall& call) noexcept override;
  void copy_and_release(SendCompletion& owner) override { connection().copy_and_release(owner); }
  // Methods with streams are not served.
  std::shared_ptr<detail::StreamCore> open_stream(std::uint32_t) override { return nullptr; }
  std::stop_token stopping() const noexcept override { return host_.connection().stopping(); }

 private:
  using Kind = RequestPlan::Kind;

  // The body of a request that no route reads in parts.
  struct WholeBody {
    std::uint64_t content_length = 0;
    CollectedBody collected{1024};
    detail::ReceiveCharge charge;

    void clear() {
      collected.clear();
      charge.reset();
    }
  };
  struct Answer {
    bool given = false;  // The call has been answered; its result may still be converted.
    bool head_sent = false;
    bool head_only = false;  // To a request with HEAD.
    bool converts = false;   // The body is to be converted to JSON.
    std::size_t bytes = 0;
    Buffer body;

    void begin(bool without_body) noexcept {
      given = head_sent = converts = false;
      head_only = without_body;
    }
  };
  // Results that are converted on other threads.
  struct Conversion {
    unsigned tasks = 0;
    std::stop_source stop = std::stop_source(std::nostopstate);
    Scope scope;
  };

  // ---- RouteResponder ----
  detail::ReplySink& sink() noexcept override { return *this; }
  const rpc::ServerInterceptors& interceptors() noexcept override { return host_.port_host().interceptors; }
  const HttpOptions& http_options() const noexcept override;
  void reply_route(std::uint32_t call, const HttpResponse& response) override;
  Task<void> stream_route(std::uint32_t call, const HttpRequest& request, const HttpResponse& response) override;
  Task<Result<void>> write_part(HttpBodyWriter& writer, std::string_view bytes) override;
  Task<Result<std::string>> read_part(HttpBodyReader& reader) override;
  void limit_queue(std::size_t bytes) override { queue_bytes_max_ = bytes; }

  detail::ReplySink& connection() noexcept { return host_.connection(); }
  // Reads the head. Nothing if it can't be served: then the request has been answered.
  bool read_head(const rpc::HttpStreamHead& head);
  // Begins a route that reads the body in parts. False if the request has been answered.
  bool begin_parts_route();
  void append_body(Bytes bytes);
  bool grow_body(std::size_t bytes);
  void run_method(Bytes body, Block* block, const rpc::BodyForm& form);
  void run_route(Bytes body, Block* block, const rpc::BodyForm& form);
  void start(const detail::IncomingRequest& request, const rpc::BodyForm& form) override;  // rpc::HttpStreamHost::Route
  detail::IncomingRequest incoming(Bytes body, Block* block);
  // Converts a long result on another thread. Ends early if the client goes away.
  Task<void> convert_result(std::vector<std::byte> payload);
  void reply_json(const Result<JsonText>& json);
  void refuse(unsigned status, const Error& error, std::string_view allow = {});
  void respond(unsigned status, std::string_view type, std::string_view body, std::string_view allow = {});
  void begin_head();
  void send_whole(unsigned status, std::string_view body);
  // Begins the head of a route's response. False if the status can't be: the request has been answered then.
  bool begin_route(std::uint32_t call, const HttpResponse& response);
  bool answers(std::uint32_t call) const noexcept { return call_ != 0 && call == call_ && !answer_.given; }
  void finish(bool whole);
  void rest_if_done();

  StreamExchanges& owner_;
  rpc::HttpStreamHost& host_;

  // The present request.
  std::uint32_t call_ = 0;  // 0: none.
  RequestPlan plan_;
  CallFields fields_;
  KeptHead head_;  // If a route is asked for.
  WholeBody body_;
  IncomingBody parts_;  // The body, if its route reads it in parts.
  bool gone_ = false;   // Nobody receives the response.

  Answer answer_;        // To the present request.
  StreamHead response_;  // Its head.

  unsigned active_ = 0;  // Active calls, perhaps one of an earlier request that has not ended.
  bool resting_ = true;  // Free for the next request.
  std::size_t queue_bytes_max_ = SIZE_MAX;
  exec::Condition room_;  // Notified when a writer may go on, and when the client has gone.
  bool waits_for_connection_ = false;
  Conversion conversion_;

  friend class StreamExchanges;
};

// The requests of one connection of HTTP/2.
class StreamExchanges final : public rpc::HttpStreams {
 public:
  StreamExchanges(rpc::HttpStreamHost& host, const Served& served);

  rpc::HttpExchange* begin(std::uint32_t call, const rpc::HttpStreamHead& head) override;
  void on_room() override;
  bool working() const noexcept override;
  Duration write_timeout() const noexcept override { return served_.options.write_timeout; }

 private:
  friend class StreamExchange;

  rpc::HttpStreamHost& host_;
  const Served served_;
  // As many as requests were active at once, which the connection bounds.
  std::vector<std::unique_ptr<StreamExchange>> all_;
  std::vector<StreamExchange*> resting_;
  std::vector<StreamExchange*> waiting_;  // Have waits_for_connection_.
};

}  // namespace hawser::protocol::http
