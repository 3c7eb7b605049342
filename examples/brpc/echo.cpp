// bRPC's echo program over hawser::pb. docs/from-brpc.md maps the classes.
#include "echo_service.h"

int main() {
  const EchoServer server;
  const hawser::pb::ChannelOptions options = patient_options();
  hawser::pb::Channel channel;
  if (channel.Init(server.address(), &options) != 0) {
    std::puts(channel.error_text().c_str());
    return 1;
  }
  example::EchoService_Stub stub(&channel);
  for (int i = 0; i < 3; ++i) {
    example::EchoRequest request;
    example::EchoResponse response;
    hawser::pb::Controller cntl;
    request.set_message("hello world");
    cntl.set_log_id(static_cast<std::uint64_t>(i) + 1);
    cntl.request_attachment().append("beside it");
    stub.Echo(&cntl, &request, &response, nullptr);
    if (cntl.Failed()) {
      std::puts(cntl.ErrorText().c_str());
      return 1;
    }
    std::printf("%s answered %s with %s after %ld us\n", cntl.remote_side().c_str(), response.message().c_str(),
                cntl.response_attachment().to_string().c_str(), static_cast<long>(cntl.latency_us()));
    if (response.message() != "hello world" || cntl.response_attachment().to_string() != "beside it") return 1;
  }
  return 0;
}
