// bRPC's streaming echo program over hawser::pb: the call opens a stream, on which both sides then write messages.
#include <hawser/protobuf_stream.h>

#include <condition_variable>

#include "echo_service.h"

// Prints what comes, and notices the end.
class StreamClientReceiver : public hawser::pb::StreamInputHandler {
 public:
  int on_received_messages(hawser::pb::StreamId, hawser::pb::IOBuf* const messages[], std::size_t size) override {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < size; ++i) std::printf("received %s\n", messages[i]->to_string().c_str());
    received_ += size;
    changed_.notify_all();
    return 0;
  }
  void on_idle_timeout(hawser::pb::StreamId) override { std::puts("nothing has come for a while"); }
  void on_closed(hawser::pb::StreamId) override {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  void wait_for(std::size_t messages) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || received_ >= messages; });
  }
  void wait_until_closed() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t received_ = 0;
  bool closed_ = false;
};

int main() {
  const EchoServer server;
  const hawser::pb::ChannelOptions options = patient_options();
  hawser::pb::Channel channel;
  if (channel.Init(server.address(), &options) != 0) return 1;
  example::EchoService_Stub stub(&channel);
  StreamClientReceiver receiver;
  hawser::pb::StreamOptions stream_options;
  stream_options.handler = &receiver;
  hawser::pb::Controller cntl;
  hawser::pb::StreamId stream = hawser::pb::INVALID_STREAM_ID;
  if (hawser::pb::StreamCreate(&stream, cntl, &stream_options) != 0) return 1;
  example::EchoRequest request;
  request.set_message("open a stream");
  example::EchoResponse response;
  stub.Echo(&cntl, &request, &response, nullptr);
  if (cntl.Failed()) {
    std::puts(cntl.ErrorText().c_str());
    return 1;
  }
  std::printf("the stream is open: %s\n", response.message().c_str());
  for (const char* const text : {"abcdefghijklmnopqrstuvwxyz", "0123456789"}) {
    hawser::pb::IOBuf message;
    message.append(text);
    if (hawser::pb::StreamWrite(stream, message) != 0) return 1;
  }
  receiver.wait_for(2);
  hawser::pb::StreamClose(stream);
  receiver.wait_until_closed();
  std::puts("the stream is closed");
  return 0;
}
