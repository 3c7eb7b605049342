// bRPC's cancel program over hawser::pb: two calls, of which the first to end cancels the other.
#include <cerrno>

#include "echo_service.h"

static void CancelOther(hawser::pb::CallId other) { hawser::pb::StartCancel(other); }

int main() {
  const EchoServer server;
  const hawser::pb::ChannelOptions options = patient_options();
  hawser::pb::Channel channel;
  if (channel.Init(server.address(), &options) != 0) return 1;
  example::EchoService_Stub stub(&channel);

  example::EchoRequest waiting;
  waiting.set_message("wait until cancelled");
  example::EchoRequest quick;
  quick.set_message("hello");
  example::EchoResponse responses[2];
  hawser::pb::Controller cntls[2];
  const hawser::pb::CallId ids[2] = {cntls[0].call_id(), cntls[1].call_id()};
  stub.Echo(&cntls[0], &waiting, &responses[0], hawser::pb::NewCallback(&CancelOther, ids[1]));
  stub.Echo(&cntls[1], &quick, &responses[1], hawser::pb::NewCallback(&CancelOther, ids[0]));
  hawser::pb::Join(ids[0]);
  hawser::pb::Join(ids[1]);
  std::printf("%s; the other call: %s\n", responses[1].message().c_str(), cntls[0].ErrorText().c_str());
  return !cntls[1].Failed() && cntls[0].IsCanceled() && cntls[0].ErrorCode() == ECANCELED ? 0 : 1;
}
