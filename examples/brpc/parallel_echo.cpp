// bRPC's parallel echo program over hawser::pb: one call to several channels at once.
#include <hawser/protobuf_parallel_channel.h>

#include "echo_service.h"

// Gives each channel a request of its own.
class NumberedRequests : public hawser::pb::CallMapper {
 public:
  hawser::pb::SubCall Map(int channel_index, int, const google::protobuf::MethodDescriptor* method,
                          const google::protobuf::Message* request, google::protobuf::Message* response) override {
    auto* const mine = new example::EchoRequest(static_cast<const example::EchoRequest&>(*request));
    mine->set_message(mine->message() + " " + std::to_string(channel_index));
    return hawser::pb::SubCall(method, mine, response->New(),
                               hawser::pb::SubCall::DELETE_REQUEST | hawser::pb::SubCall::DELETE_RESPONSE);
  }
};

class Lines : public hawser::pb::ResponseMerger {
 public:
  Result Merge(google::protobuf::Message* response, const google::protobuf::Message* sub_response) override {
    auto& all = static_cast<example::EchoResponse&>(*response);
    all.set_message(all.message() + static_cast<const example::EchoResponse&>(*sub_response).message() + "\n");
    return MERGED;
  }
};

int main() {
  const EchoServer server;
  hawser::pb::ParallelChannel channel;
  hawser::pb::ParallelChannelOptions pchan_options;
  pchan_options.timeout_ms = 30'000;
  pchan_options.fail_limit = 1;
  if (channel.Init(&pchan_options) != 0) return 1;
  const hawser::pb::ChannelOptions options = patient_options();
  auto* const mapper = new NumberedRequests;
  auto* const merger = new Lines;
  for (int i = 0; i < 3; ++i) {
    auto* const sub_channel = new hawser::pb::Channel;
    if (sub_channel->Init(server.address(), &options) != 0) return 1;
    if (channel.AddChannel(sub_channel, hawser::pb::OWNS_CHANNEL, mapper, merger) != 0) return 1;
  }
  example::EchoService_Stub stub(&channel);
  example::EchoRequest request;
  example::EchoResponse response;
  hawser::pb::Controller cntl;
  request.set_message("hello");
  stub.Echo(&cntl, &request, &response, nullptr);
  if (cntl.Failed()) {
    std::puts(cntl.ErrorText().c_str());
    return 1;
  }
  std::printf("%s", response.message().c_str());
  for (int i = 0; i < cntl.sub_count(); ++i) {
    std::printf("channel %d: %ld us\n", i, static_cast<long>(cntl.sub(i)->latency_us()));
  }
  return response.message() == "hello 0\nhello 1\nhello 2\n" ? 0 : 1;
}
