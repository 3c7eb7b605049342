// bRPC's asynchronous echo program over hawser::pb: a closure runs when the response has come.
#include <memory>

#include "echo_service.h"

static void HandleEchoResponse(hawser::pb::Controller* cntl, example::EchoResponse* response) {
  // The call has ended, and nobody else uses its objects.
  const std::unique_ptr<hawser::pb::Controller> cntl_guard(cntl);
  const std::unique_ptr<example::EchoResponse> response_guard(response);
  std::puts(cntl->Failed() ? cntl->ErrorText().c_str() : response->message().c_str());
}

int main() {
  const EchoServer server;
  const hawser::pb::ChannelOptions options = patient_options();
  hawser::pb::Channel channel;
  if (channel.Init(server.address(), &options) != 0) return 1;
  example::EchoService_Stub stub(&channel);
  std::vector<hawser::pb::CallId> ids;
  for (int i = 0; i < 3; ++i) {
    auto* const response = new example::EchoResponse;
    auto* const cntl = new hawser::pb::Controller;
    example::EchoRequest request;
    request.set_message("hello " + std::to_string(i));
    ids.push_back(cntl->call_id());
    stub.Echo(cntl, &request, response, hawser::pb::NewCallback(&HandleEchoResponse, cntl, response));
  }
  for (const hawser::pb::CallId& id : ids) hawser::pb::Join(id);  // Also waits for the closure.
  return 0;
}
