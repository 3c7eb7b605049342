#pragma once

#include <google/protobuf/service.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "hawser/bytes.h"
#include "hawser/context.h"
#include "hawser/error.h"
#include "hawser/server.h"

// Services of `option cc_generic_services = true`: implementations of google::protobuf::Service, as bRPC has them.
namespace hawser::pb {

struct GenericServiceOptions {
  // Calls CallMethod() on a thread of the loop's offload pool, because such services often block. False: on the loop,
  // where a method must not block.
  bool offload = true;
};

// Registers all methods of `service`, which must outlive the server, under `package.Service/Method`. A method may call
// its `done` later and on any thread. It receives a Controller. The rules are those of Server::register_handler().
void add_service(Server& server, google::protobuf::Service* service, GenericServiceOptions options = {});

// The controller of a call that a server executes. Valid until `done` has run. Used by one thread at a time, except for
// IsCanceled().
class Controller final : public google::protobuf::RpcController {
 public:
  explicit Controller(Context& context);
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;
  ~Controller() override;

  // Fails the call: the caller receives ErrorCode::application with the text and the code, which is 0 without one.
  void SetFailed(const std::string& text) override { SetFailed(0, text); }
  void SetFailed(std::int32_t code, const std::string& text);
  bool Failed() const override { return error_.has_value(); }
  std::string ErrorText() const override { return error_ ? error_->text : std::string(); }
  std::int32_t ErrorCode() const { return error_ ? error_->application_code : 0; }
  // True after the caller has cancelled the call, its deadline has passed, or its connection has ended.
  bool IsCanceled() const override { return token_.stop_requested(); }
  // Runs `callback` once: when the call is cancelled, on the loop's thread, or else when `done` has run.
  void NotifyOnCancel(google::protobuf::Closure* callback) override;
  // Does nothing: for clients.
  void StartCancel() override {}
  void Reset() override;

  // The caller's attachment and metadata, and its address.
  Bytes request_attachment() const noexcept { return request_attachment_.bytes(); }
  const Metadata& request_metadata() const noexcept { return request_metadata_; }
  const std::string& remote_side() const noexcept { return peer_; }
  // Time at which the caller stops waiting; empty without a deadline.
  std::optional<Time> deadline() const noexcept { return deadline_; }
  // Sent beside the response, without a copy.
  void set_response_attachment(Buffer attachment) noexcept { response_attachment_ = std::move(attachment); }

  // For the library: runs the callback of NotifyOnCancel() that has not run.
  void finish() noexcept;
  const std::optional<Error>& error() const noexcept { return error_; }
  Buffer& response_attachment() noexcept { return response_attachment_; }

 private:
  struct Cancellation;

  std::optional<Error> error_;
  const std::stop_token token_;
  const Buffer request_attachment_;
  const Metadata request_metadata_;
  const std::string peer_;
  const std::optional<Time> deadline_;
  Buffer response_attachment_;
  std::unique_ptr<Cancellation> cancellation_;
};

}  // namespace hawser::pb
