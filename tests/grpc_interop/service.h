#pragma once

#include "hawser/hawser.h"
#include "interop.hawser.h"

// The service of gRPC's interoperability tests.
namespace hawser::grpc_interop {

namespace messages = ::grpc::testing;

class Service final : public messages::TestService {
 public:
  Task<Result<messages::Empty>> EmptyCall(Context& context, const messages::Empty& request) override;
  Task<Result<messages::SimpleResponse>> UnaryCall(Context& context, const messages::SimpleRequest& request) override;
  Task<Result<void>> StreamingOutputCall(Context& context, const messages::StreamingOutputCallRequest& request,
                                         Writer<messages::StreamingOutputCallResponse> replies) override;
  Task<Result<messages::StreamingInputCallResponse>> StreamingInputCall(
      Context& context, Reader<messages::StreamingInputCallRequest> requests) override;
  Task<Result<void>> FullDuplexCall(Context& context, Reader<messages::StreamingOutputCallRequest> requests,
                                    Writer<messages::StreamingOutputCallResponse> replies) override;
  Task<Result<void>> HalfDuplexCall(Context& context, Reader<messages::StreamingOutputCallRequest> requests,
                                    Writer<messages::StreamingOutputCallResponse> replies) override;
};

}  // namespace hawser::grpc_interop
