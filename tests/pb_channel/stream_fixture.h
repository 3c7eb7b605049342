#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/protobuf_stream.h"
#include "tests/pb_channel/fixture.h"

// Clients and services with streams of hawser::pb.
namespace hawser::pb {

inline IOBuf message_of(std::string_view text) {
  IOBuf message;
  message.append(text);
  return message;
}

// Keeps what comes.
class Inbox : public StreamInputHandler {
 public:
  int on_received_messages(StreamId id, IOBuf* const messages[], std::size_t size) override {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(busy_.insert(id).second) << "two functions of the handler at once";
    EXPECT_FALSE(ended_.contains(id)) << "messages after the end";
    largest_batch_ = std::max(largest_batch_, size);
    changed_.wait(lock, [&] { return !held_; });
    for (std::size_t i = 0; i < size; ++i) messages_.push_back(messages[i]->to_string());
    busy_.erase(id);
    changed_.notify_all();
    return 0;
  }
  void on_idle_timeout(StreamId) override {
    const std::lock_guard lock(mutex_);
    ++idle_;
    changed_.notify_all();
  }
  void on_closed(StreamId id) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(busy_.contains(id));
    EXPECT_TRUE(ended_.insert(id).second) << "a second end";
    ++closed_;
    changed_.notify_all();
  }

  bool wait_for(std::size_t messages) {
    return wait([&] { return messages_.size() >= messages; });
  }
  bool wait_until_closed() {
    return wait([&] { return closed_ != 0; });
  }
  bool wait_for_idle(int times) {
    return wait([&] { return idle_ >= times; });
  }
  std::vector<std::string> messages() {
    const std::lock_guard lock(mutex_);
    return messages_;
  }
  int closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  std::size_t largest_batch() {
    const std::lock_guard lock(mutex_);
    return largest_batch_;
  }
  // While held, on_received_messages() does not return.
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }

 private:
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, condition);
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> messages_;
  std::size_t largest_batch_ = 0;
  std::set<StreamId> busy_;
  std::set<StreamId> ended_;
  bool held_ = false;
  int idle_ = 0;
  int closed_ = 0;
};

// Sends messages back. "close" closes the stream.
class Echo final : public StreamInputHandler {
 public:
  int on_received_messages(StreamId id, IOBuf* const messages[], std::size_t size) override {
    for (std::size_t i = 0; i < size; ++i) {
      if (messages[i]->to_string() == "close") return StreamClose(id);
      while (StreamWrite(id, *messages[i]) == EAGAIN) {
        ++waiting;
        StreamWait(id, nullptr);
        --waiting;
      }
    }
    return 0;
  }
  void on_idle_timeout(StreamId) override {}
  void on_closed(StreamId) override {
    if (Loop::current() != nullptr) ++on_loops;
    ++closed;
  }
  std::atomic<int> on_loops{0};
  std::atomic<int> closed{0};
  std::atomic<int> waiting{0};
};

class StreamOffice final : public probe::PostService {
 public:
  void Deliver(google::protobuf::RpcController* base, const probe::Parcel* request, probe::Receipt* response,
               google::protobuf::Closure* done) override {
    const ClosureGuard guard(done);
    auto* const controller = static_cast<Controller*>(base);
    response->set_text("to " + request->text());
    controller->response_attachment().append("beside");
    if (request->text() == "do not accept") return;
    if (request->text().starts_with("several")) return accept_all(*controller, request->text());
    StreamOptions options;
    options.handler = request->text() == "inbox" ? static_cast<StreamInputHandler*>(&inbox) : &echo;
    if (request->text() == "no handler") options.handler = nullptr;
    StreamId stream = INVALID_STREAM_ID;
    if (StreamAccept(&stream, *controller, &options) != 0) return;  // The caller has created none.
    EXPECT_EQ(StreamAccept(&stream, *controller, &options), -1);
    EXPECT_EQ(StreamCreate(&stream, *controller, &options), -1);
    last_stream = stream;
    if (options.handler != nullptr) ++accepted;
    if (request->text() == "accept and fail") return controller->SetFailed(18, "after all");
    if (request->text() == "write first") {
      EXPECT_EQ(StreamWrite(stream, message_of("first")), 0);
    }
    if (request->text() == "close first") {
      EXPECT_EQ(StreamWrite(stream, message_of("only")), 0);
      EXPECT_EQ(StreamClose(stream), 0);
    }
  }
  void Hold(google::protobuf::RpcController*, const probe::Parcel*, probe::Receipt*,
            google::protobuf::Closure* done) override {
    done->Run();
  }
  Echo echo;
  Inbox inbox;
  // The streams of the last call with "several".
  StreamIds streams() {
    const std::lock_guard lock(mutex_);
    return streams_;
  }
  std::atomic<StreamId> last_stream{INVALID_STREAM_ID};
  std::atomic<int> accepted{0};

 private:
  void accept_all(Controller& controller, const std::string& text) {
    StreamOptions options;
    options.handler = text == "several inbox" ? static_cast<StreamInputHandler*>(&inbox) : &echo;
    StreamId one = INVALID_STREAM_ID;
    EXPECT_EQ(StreamAccept(&one, controller, &options), text == "several as one" ? 0 : -1);
    StreamIds ids;
    EXPECT_EQ(StreamAccept(ids, controller, &options), text == "several as one" ? -1 : 0);
    StreamIds again;
    EXPECT_EQ(StreamAccept(again, controller, &options), -1);
    {
      const std::lock_guard lock(mutex_);  // Calls run on all loops.
      streams_ = ids;
    }
    accepted += static_cast<int>(ids.size());
    if (text == "several and fail") return controller.SetFailed(18, "after all");
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(StreamWrite(ids[i], message_of("stream " + std::to_string(i))), 0);
    }
  }

  std::mutex mutex_;
  StreamIds streams_;
};

class PbStreams : public ::testing::Test {
 public:
  PbStreams() {
    server.emplace();
    server->enable(baidu_std());
    add_service(*server, &office);
    if (auto started = server->start(); !started) ADD_FAILURE() << started.error().describe();
    options.timeout_ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
    options.connect_timeout_ms = static_cast<std::int32_t>(options.timeout_ms);
    channel = std::make_unique<Channel>();
    EXPECT_EQ(channel->Init(server->address(), &options), 0) << channel->error_text();
  }
  ~PbStreams() override {
    EXPECT_TRUE(soon([&] { return !server || server->counters().calls_in_flight == 0; }));
    channel.reset();
    if (server) server->stop(Duration(0));
  }
  // Calls with a stream. Returns the controller's error code.
  int open(const std::string& text, StreamId& stream, const StreamOptions& with) {
    Controller controller;
    EXPECT_EQ(StreamCreate(&stream, controller, &with), 0);
    probe::PostService_Stub stub(channel.get());
    probe::Parcel parcel;
    parcel.set_text(text);
    probe::Receipt receipt;
    stub.Deliver(&controller, &parcel, &receipt, nullptr);
    if (!controller.Failed()) {
      EXPECT_EQ(receipt.text(), "to " + text);
      EXPECT_EQ(controller.response_attachment().to_string(), "beside");
    }
    return controller.ErrorCode();
  }
  static StreamOptions with(StreamInputHandler& handler) {
    StreamOptions options;
    options.handler = &handler;
    return options;
  }
  static timespec in(std::chrono::milliseconds time) {
    const auto due = std::chrono::system_clock::now() + time;
    const auto seconds = std::chrono::floor<std::chrono::seconds>(due);
    return {std::chrono::system_clock::to_time_t(seconds),
            static_cast<long>(std::chrono::nanoseconds(due - seconds).count())};
  }

  StreamOffice office;
  std::optional<Server> server;
  ChannelOptions options;
  std::unique_ptr<Channel> channel;
};

}  // namespace hawser::pb
