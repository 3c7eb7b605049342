// Clients of google::protobuf::Service.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/brpc.h"
#include "hawser/hawser.h"
#include "hawser/protobuf_channel.h"
#include "hawser/protobuf_generic.h"
#include "hawser/protobuf_parallel_channel.h"
#include "protobuf/test/generic.pb.h"
#include "tests/testing.h"

namespace hawser::pb {
namespace {

using namespace testing_tools;

class PostOffice final : public probe::PostService {
 public:
  void Deliver(google::protobuf::RpcController* base, const probe::Parcel* request, probe::Receipt* response,
               google::protobuf::Closure* done) override {
    const ClosureGuard guard(done);
    auto* const controller = static_cast<Controller*>(base);
    if (request->text() == "fail") return controller->SetFailed(17, "no such street");
    if (request->text() == "fail without a code") return controller->SetFailed("no such house");
    response->set_text(request->text() + " " + std::to_string(controller->log_id()));
    controller->response_attachment().append(controller->request_attachment());
  }
  // Keeps the call until release(), unless `open`.
  void Hold(google::protobuf::RpcController* controller, const probe::Parcel* request, probe::Receipt* response,
            google::protobuf::Closure* done) override {
    response->set_text(request->text());
    controller->NotifyOnCancel(NewCallback(this, &PostOffice::on_cancel));
    {
      const std::lock_guard lock(mutex_);
      ++holding;
      if (!open) {
        held_.push_back(done);
        return;
      }
    }
    done->Run();
  }
  void release() {
    std::vector<google::protobuf::Closure*> held;
    {
      const std::lock_guard lock(mutex_);
      held.swap(held_);
    }
    for (auto* const done : held) done->Run();
  }
  std::atomic<int> holding{0};
  std::atomic<int> cancelled{0};
  std::atomic<bool> open{false};

 private:
  void on_cancel() { ++cancelled; }
  std::mutex mutex_;
  std::vector<google::protobuf::Closure*> held_;
};

// A `done` that runs a function.
class Then final : public google::protobuf::Closure {
 public:
  explicit Then(std::function<void()> work) : work_(std::move(work)) {}
  void Run() override {
    const std::unique_ptr<Then> self(this);
    work_();
  }

 private:
  const std::function<void()> work_;
};

class PbChannel : public ::testing::TestWithParam<const char*> {
 protected:
  PbChannel() {
    server.enable(baidu_std());
    add_service(server, &office);
    if (auto started = server.start(); !started) ADD_FAILURE() << started.error().describe();
    address = server.address();
    options.protocol = GetParam();
    options.timeout_ms =
        std::chrono::milliseconds(std::chrono::duration_cast<std::chrono::milliseconds>(patience)).count();
    options.connect_timeout_ms = static_cast<std::int32_t>(options.timeout_ms);
  }
  ~PbChannel() override {
    office.open = true;  // For requests that arrive after release().
    office.release();
    server.stop(Duration(0));
  }
  std::unique_ptr<Channel> channel() {
    auto made = std::make_unique<Channel>();
    EXPECT_EQ(made->Init(address, &options), 0) << made->error_text();
    return made;
  }
  static probe::Parcel parcel(const std::string& text) {
    probe::Parcel parcel;
    parcel.set_text(text);
    return parcel;
  }

  PostOffice office;
  Server server;
  std::string address;
  ChannelOptions options;
};

INSTANTIATE_TEST_SUITE_P(Protocols, PbChannel, ::testing::Values("baidu_std", "hawser"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(PbChannel, SeveralThreadsCallAndWait) {
  for (const char* const type : {"single", "pooled", "short"}) {
    options.connection_type = type;
    const auto shared = channel();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        probe::PostService_Stub stub(shared.get());
        for (int k = 0; k < 20; ++k) {
          Controller controller;
          probe::Receipt receipt;
          const std::uint64_t number = static_cast<std::uint64_t>(i) * 100 + static_cast<std::uint64_t>(k) + 1;
          controller.set_log_id(number);
          controller.request_attachment().append("beside " + std::to_string(number));
          const probe::Parcel request = parcel("hello");
          stub.Deliver(&controller, &request, &receipt, nullptr);
          ASSERT_FALSE(controller.Failed()) << type << ": " << controller.ErrorText();
          EXPECT_EQ(receipt.text(), "hello " + std::to_string(number));
          EXPECT_EQ(controller.response_attachment().to_string(), "beside " + std::to_string(number));
          EXPECT_EQ(controller.remote_side(), address);
          EXPECT_EQ(controller.retried_count(), 0);
          EXPECT_EQ(controller.ErrorCode(), 0);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(PbChannel, AControllerIsUsedAgainAfterReset) {
  const auto made = channel();
  probe::PostService_Stub stub(made.get());
  Controller controller;
  probe::Receipt receipt;
  const probe::Parcel failing = parcel("fail");
  stub.Deliver(&controller, &failing, &receipt, nullptr);
  EXPECT_TRUE(controller.Failed());
  EXPECT_EQ(controller.ErrorCode(), 17);
  EXPECT_EQ(controller.ErrorText(), "no such street");
  controller.Reset();
  EXPECT_FALSE(controller.Failed());
  const probe::Parcel without = parcel("fail without a code");
  stub.Deliver(&controller, &without, &receipt, nullptr);
  EXPECT_TRUE(controller.Failed());
  EXPECT_EQ(controller.ErrorCode(), EINTERNAL);
  controller.Reset();
  const probe::Parcel fine = parcel("fine");
  stub.Deliver(&controller, &fine, &receipt, nullptr);
  EXPECT_FALSE(controller.Failed()) << controller.ErrorText();
  EXPECT_EQ(receipt.text(), "fine 0");
}

TEST_P(PbChannel, ADoneMayDestroyEverything) {
  struct Everything {
    std::unique_ptr<Channel> channel;
    Controller controller;
    probe::Receipt receipt;
  };
  auto* const all = new Everything{.channel = channel(), .controller = {}, .receipt = {}};
  std::atomic<bool> ended{false};
  std::string text;
  const CallId id = all->controller.call_id();
  {
    const probe::Parcel request = parcel("async");  // The request is not used after CallMethod().
    probe::PostService_Stub(all->channel.get()).Deliver(&all->controller, &request, &all->receipt, new Then([&, all] {
      text = all->controller.Failed() ? all->controller.ErrorText() : all->receipt.text();
      delete all;
      ended = true;
    }));
  }
  Join(id);
  EXPECT_TRUE(ended);
  EXPECT_EQ(text, "async 0");
}

TEST_P(PbChannel, AChannelIsDestroyedWhileItsCallsAreInFlight) {
  auto made = channel();
  Controller controller;
  probe::Receipt receipt;
  const probe::Parcel request = parcel("kept");
  probe::PostService_Stub(made.get()).Hold(&controller, &request, &receipt, DoNothing());
  ASSERT_TRUE(soon([&] { return office.holding == 1; }));
  made.reset();
  office.release();
  Join(controller.call_id());
  EXPECT_FALSE(controller.Failed()) << controller.ErrorText();
  EXPECT_EQ(receipt.text(), "kept");
}

TEST_P(PbChannel, AnotherThreadCancels) {
  const auto made = channel();
  Controller controller;
  probe::Receipt receipt;
  const probe::Parcel request = parcel("x");
  const CallId id = controller.call_id();
  std::thread canceller([&] {
    EXPECT_TRUE(soon([&] { return office.holding == 1; }));
    StartCancel(id);
  });
  probe::PostService_Stub(made.get()).Hold(&controller, &request, &receipt, nullptr);
  canceller.join();
  EXPECT_EQ(controller.ErrorCode(), ECANCELED);
  EXPECT_TRUE(controller.IsCanceled());
  StartCancel(id);  // Does nothing any more.
  // baidu_std has no message for this.
  if (options.protocol == "hawser") {
    EXPECT_TRUE(soon([&] { return office.cancelled == 1; }));
  }
}

TEST_P(PbChannel, ACallThatWasCancelledBeforeItBeginsIsNotSent) {
  const auto made = channel();
  Controller controller;
  probe::Receipt receipt;
  const probe::Parcel request = parcel("x");
  controller.StartCancel();
  probe::PostService_Stub(made.get()).Hold(&controller, &request, &receipt, nullptr);
  EXPECT_EQ(controller.ErrorCode(), ECANCELED);
  EXPECT_EQ(office.holding, 0);
}

TEST_P(PbChannel, ATimeoutEndsTheCall) {
  const auto made = channel();
  Controller controller;
  probe::Receipt receipt;
  const probe::Parcel request = parcel("x");
  controller.set_timeout_ms(20);
  probe::PostService_Stub(made.get()).Hold(&controller, &request, &receipt, nullptr);
  EXPECT_EQ(controller.ErrorCode(), ERPCTIMEDOUT) << controller.ErrorText();
  EXPECT_GE(controller.latency_us(), 20'000);
}

TEST_P(PbChannel, ABackupRequestMayAnswer) {
  const auto made = channel();
  Controller controller;
  probe::Receipt receipt;
  const probe::Parcel request = parcel("x");
  controller.set_backup_request_ms(1);
  // The first request is held. The service answers those that arrive after it.
  std::thread opener([&] {
    EXPECT_TRUE(soon([&] { return office.holding >= 1; }));
    office.open = true;
    EXPECT_TRUE(soon([&] { return office.holding >= 2; }));
    office.release();  // In case that both had arrived before.
  });
  probe::PostService_Stub(made.get()).Hold(&controller, &request, &receipt, nullptr);
  opener.join();
  EXPECT_FALSE(controller.Failed()) << controller.ErrorText();
  EXPECT_TRUE(controller.has_backup_request());
  EXPECT_EQ(receipt.text(), "x");
}

TEST_P(PbChannel, ACallWithoutDoneIsRefusedOnALoop) {
  const auto made = channel();
  probe::PostService_Stub stub(made.get());
  Controller outer;
  Controller inner;
  probe::Receipt receipt;
  const probe::Parcel request = parcel("x");
  stub.Deliver(&outer, &request, &receipt, new Then([&] { stub.Deliver(&inner, &request, &receipt, nullptr); }));
  Join(outer.call_id());
  EXPECT_FALSE(outer.Failed()) << outer.ErrorText();
  EXPECT_EQ(inner.ErrorCode(), EREQUEST);
  EXPECT_NE(inner.ErrorText().find("would block a thread that runs a loop"), std::string::npos) << inner.ErrorText();
}

TEST_P(PbChannel, AControllerThatIsDestroyedCancelsItsCall) {
  const auto made = channel();
  auto controller = std::make_unique<Controller>();
  auto receipt = std::make_unique<probe::Receipt>();
  const probe::Parcel request = parcel("x");
  const CallId id = controller->call_id();
  std::atomic<int> ended{0};
  probe::PostService_Stub(made.get()).Hold(controller.get(), &request, receipt.get(), new Then([&] { ++ended; }));
  ASSERT_TRUE(soon([&] { return office.holding == 1; }));
  controller.reset();
  receipt.reset();
  Join(id);
  EXPECT_EQ(ended, 1);
}

TEST_P(PbChannel, RequestsAreRepeatedUntilTheirLimit) {
  server.stop(Duration(0));
  const auto made = channel();
  Controller controller;
  probe::Receipt receipt;
  const probe::Parcel request = parcel("x");
  controller.set_max_retry(2);
  probe::PostService_Stub(made.get()).Deliver(&controller, &request, &receipt, nullptr);
  EXPECT_EQ(controller.ErrorCode(), EHOSTDOWN) << controller.ErrorText();
  EXPECT_EQ(controller.retried_count(), 2);
}

TEST_P(PbChannel, EachCompressionIsAnswered) {
  const auto made = channel();
  const std::string text = text_of(100'000);
  for (const CompressType type : {COMPRESS_TYPE_NONE, COMPRESS_TYPE_SNAPPY, COMPRESS_TYPE_GZIP, COMPRESS_TYPE_ZLIB}) {
    Controller controller;
    probe::Receipt receipt;
    const probe::Parcel request = parcel(text);
    controller.set_request_compress_type(type);
    controller.request_attachment().append(text);
    probe::PostService_Stub(made.get()).Deliver(&controller, &request, &receipt, nullptr);
    ASSERT_FALSE(controller.Failed()) << controller.ErrorText();
    EXPECT_EQ(receipt.text(), text + " 0");
    EXPECT_EQ(controller.response_attachment().to_string(), text);
  }
}

TEST_P(PbChannel, WhatCannotBeginIsRefused) {
  Channel none;
  Controller controller;
  probe::Receipt receipt;
  const probe::Parcel request = parcel("x");
  int ended = 0;
  probe::PostService_Stub(&none).Deliver(&controller, &request, &receipt, new Then([&] { ++ended; }));
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(controller.ErrorCode(), EREQUEST);
  EXPECT_NE(controller.ErrorText().find("call Init() first"), std::string::npos) << controller.ErrorText();

  options.connection_type = "double";
  EXPECT_EQ(none.Init(address, &options), -1);
  EXPECT_EQ(none.error_text(), "connection_type is 'double': it must be single, pooled or short");
  options.connection_type = "single";
  EXPECT_EQ(none.Init(address, "rr", &options), -1);
  EXPECT_EQ(none.Init(address, "", &options), 0);
  EXPECT_EQ(none.Init(address, &options), -1);

  const probe::Parcel empty;
  probe::PostService_Stub(&none).Deliver(&controller, &empty, &receipt, nullptr);
  EXPECT_EQ(controller.ErrorCode(), EREQUEST);
  EXPECT_NE(controller.ErrorText().find("required fields of the request are missing: text"), std::string::npos);
}

// Sets a flag when the thread ends that has made it.
struct ThreadEnd {
  ~ThreadEnd() { ++ended; }
  static inline std::atomic<int> ended{0};
};

TEST_P(PbChannel, TheLoopEndsAfterTheLastChannel) {
  const int before = ThreadEnd::ended;
  auto made = channel();
  Controller controller;
  probe::Receipt receipt;
  const probe::Parcel request = parcel("x");
  probe::PostService_Stub(made.get()).Deliver(&controller, &request, &receipt, new Then([] {
    thread_local const ThreadEnd watch;
    static_cast<void>(&watch);
  }));
  Join(controller.call_id());
  EXPECT_FALSE(controller.Failed()) << controller.ErrorText();
  made.reset();
  EXPECT_TRUE(soon([&] { return ThreadEnd::ended > before; }));
}

// ---- ParallelChannel ----

// Gives each channel a text of its own; empty: the channel is skipped.
class Texts final : public CallMapper {
 public:
  explicit Texts(std::vector<std::string> texts) : texts_(std::move(texts)) {}
  SubCall Map(int channel_index, int channel_count, const google::protobuf::MethodDescriptor* method,
              const google::protobuf::Message*, google::protobuf::Message* response) override {
    EXPECT_EQ(static_cast<std::size_t>(channel_count), texts_.size());
    const std::string& text = texts_[static_cast<std::size_t>(channel_index)];
    if (text.empty()) return SubCall::Skip();
    if (text == "bad") return SubCall::Bad();
    auto* const parcel = new probe::Parcel;
    parcel->set_text(text);
    return {method, parcel, response->New(), SubCall::DELETE_REQUEST | SubCall::DELETE_RESPONSE};
  }

 private:
  const std::vector<std::string> texts_;
};

class Joining final : public ResponseMerger {
 public:
  Result Merge(google::protobuf::Message* response, const google::protobuf::Message* sub_response) override {
    const std::string& text = static_cast<const probe::Receipt&>(*sub_response).text();
    if (text == "unwanted 0") return FAIL;
    if (text == "fatal 0") return FAIL_ALL;
    static_cast<probe::Receipt&>(*response).mutable_text()->append("[" + text + "]");
    return MERGED;
  }
};

class PbParallelChannel : public PbChannel {
 protected:
  std::unique_ptr<ParallelChannel> parallel(std::vector<std::string> texts, int fail_limit = -1) {
    const ParallelChannelOptions with{.timeout_ms = options.timeout_ms, .fail_limit = fail_limit};
    auto made = std::make_unique<ParallelChannel>();
    EXPECT_EQ(made->Init(&with), 0);
    const std::size_t count = texts.size();
    if (count == 0) return made;  // Nobody would own the mapper and the merger.
    auto* const mapper = new Texts(std::move(texts));
    auto* const merger = new Joining;
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(made->AddChannel(channel().release(), OWNS_CHANNEL, mapper, merger), 0);
    }
    EXPECT_EQ(made->channel_count(), static_cast<int>(count));
    return made;
  }
  // Calls Deliver and waits.
  void deliver(std::vector<std::string> texts, int fail_limit = -1) {
    const auto made = parallel(std::move(texts), fail_limit);
    const probe::Parcel request = parcel("of all");
    controller.Reset();
    probe::PostService_Stub(made.get()).Deliver(&controller, &request, &receipt, nullptr);
  }
  Controller controller;
  probe::Receipt receipt;
};

INSTANTIATE_TEST_SUITE_P(Protocols, PbParallelChannel, ::testing::Values("baidu_std", "hawser"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(PbParallelChannel, ResponsesAreMergedInTheOrderOfTheChannels) {
  receipt.set_text("of an earlier call");
  deliver({"a", "", "b", "c"});
  ASSERT_FALSE(controller.Failed()) << controller.ErrorText();
  EXPECT_EQ(receipt.text(), "[a 0][b 0][c 0]");
  EXPECT_EQ(controller.sub_count(), 3);
  EXPECT_FALSE(controller.sub(2)->Failed());
  EXPECT_EQ(controller.sub(3), nullptr);
}

TEST_P(PbParallelChannel, WithoutMapperAndMergerEachChannelGetsTheRequest) {
  const auto one = channel();
  ParallelChannel both;
  const ParallelChannelOptions with{.timeout_ms = options.timeout_ms};
  ASSERT_EQ(both.Init(&with), 0);
  EXPECT_EQ(both.AddChannel(nullptr, DOESNT_OWN_CHANNEL), -1);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(both.AddChannel(one.get(), DOESNT_OWN_CHANNEL, nullptr, nullptr), 0);
  controller.set_log_id(7);
  controller.request_attachment().append("beside");
  const probe::Parcel request = parcel("hello");
  probe::PostService_Stub(&both).Deliver(&controller, &request, &receipt, nullptr);
  ASSERT_FALSE(controller.Failed()) << controller.ErrorText();
  EXPECT_EQ(receipt.text(), "hello 7");
  ASSERT_EQ(controller.sub_count(), 2);
}

TEST_P(PbParallelChannel, TheCallFailsAtItsLimitOfFailures) {
  deliver({"fail", "a", "fail"});
  EXPECT_FALSE(controller.Failed()) << controller.ErrorText();
  EXPECT_EQ(receipt.text(), "[a 0]");
  EXPECT_EQ(controller.sub(0)->ErrorCode(), 17);
  deliver({"fail", "a", "fail"}, 2);
  EXPECT_EQ(controller.ErrorCode(), 17);
  EXPECT_EQ(controller.ErrorText(),
            "2 of 3 channels failed, and the call fails if 2 do: [channel 0: no such street] [channel 2: no such "
            "street]");
  deliver({"fail", "fail without a code"});
  EXPECT_EQ(controller.ErrorCode(), ETOOMANYFAILS);
  deliver({"unwanted", "a"});
  EXPECT_FALSE(controller.Failed()) << controller.ErrorText();
  deliver({"unwanted", "a"}, 1);
  EXPECT_EQ(controller.ErrorCode(), ERESPONSE);
  deliver({"fatal", "a"});
  EXPECT_EQ(controller.ErrorCode(), ERESPONSE);
  deliver({"bad", "a"});
  EXPECT_EQ(controller.ErrorCode(), EREQUEST);
  deliver({"", ""});
  EXPECT_EQ(controller.ErrorCode(), ECANCELED);
  deliver({});
  EXPECT_EQ(controller.ErrorCode(), EREQUEST);
}

// The second part is held, and ends because the first one has failed.
TEST_P(PbParallelChannel, AFailureCancelsTheOtherParts) {
  const auto living = channel();
  Channel dead;  // Without Init(): its part fails at once.
  ParallelChannel both;
  const ParallelChannelOptions with{.timeout_ms = options.timeout_ms, .fail_limit = 1};
  ASSERT_EQ(both.Init(&with), 0);
  ASSERT_EQ(both.AddChannel(living.get(), DOESNT_OWN_CHANNEL), 0);
  ASSERT_EQ(both.AddChannel(&dead, DOESNT_OWN_CHANNEL), 0);
  const probe::Parcel request = parcel("x");
  probe::PostService_Stub(&both).Hold(&controller, &request, &receipt, nullptr);
  EXPECT_EQ(controller.ErrorCode(), EREQUEST) << controller.ErrorText();
  ASSERT_EQ(controller.sub_count(), 2);
  EXPECT_EQ(controller.sub(0)->ErrorCode(), ECANCELED);
}

TEST_P(PbParallelChannel, CancellingTheCallCancelsItsParts) {
  const auto made = parallel({"a", "b"});
  const probe::Parcel request = parcel("x");
  const CallId id = controller.call_id();
  std::thread canceller([&] {
    EXPECT_TRUE(soon([&] { return office.holding == 2; }));
    StartCancel(id);
  });
  probe::PostService_Stub(made.get()).Hold(&controller, &request, &receipt, nullptr);
  canceller.join();
  EXPECT_EQ(controller.ErrorCode(), ECANCELED);
  controller.Reset();
  controller.StartCancel();
  probe::PostService_Stub(made.get()).Hold(&controller, &request, &receipt, nullptr);
  EXPECT_EQ(controller.ErrorCode(), ECANCELED);
  EXPECT_EQ(office.holding, 2);
}

TEST_P(PbParallelChannel, ItsDoneMayDestroyEverything) {
  struct All {
    std::unique_ptr<ParallelChannel> channel;
    Controller controller;
    probe::Receipt receipt;
  };
  auto* const all = new All{.channel = parallel({"a", "b"}), .controller = {}, .receipt = {}};
  std::string text;
  const CallId id = all->controller.call_id();
  {
    const probe::Parcel request = parcel("async");
    probe::PostService_Stub(all->channel.get()).Deliver(&all->controller, &request, &all->receipt, new Then([&, all] {
      text = all->controller.Failed() ? all->controller.ErrorText() : all->receipt.text();
      delete all;
    }));
  }
  Join(id);
  EXPECT_EQ(text, "[a 0][b 0]");
}

TEST_P(PbParallelChannel, AControllerThatIsDestroyedCancelsTheParts) {
  auto made = parallel({"a", "b"});
  auto passing = std::make_unique<Controller>();
  auto into = std::make_unique<probe::Receipt>();
  const probe::Parcel request = parcel("x");
  const CallId id = passing->call_id();
  probe::PostService_Stub(made.get()).Hold(passing.get(), &request, into.get(), DoNothing());
  ASSERT_TRUE(soon([&] { return office.holding == 2; }));
  passing.reset();
  into.reset();
  made.reset();
  Join(id);
}

TEST_P(PbChannel, AChildProcessCannotUseTheChannelsOfItsParent) {
  const auto made = channel();
  probe::PostService_Stub stub(made.get());
  Controller first;
  probe::Receipt receipt;
  const probe::Parcel request = parcel("x");
  stub.Deliver(&first, &request, &receipt, nullptr);
  ASSERT_FALSE(first.Failed()) << first.ErrorText();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Controller controller;
    stub.Deliver(&controller, &request, &receipt, nullptr);
    _exit(controller.ErrorText().find("after fork()") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Controller again;
  stub.Deliver(&again, &request, &receipt, nullptr);
  EXPECT_FALSE(again.Failed()) << again.ErrorText();
}

}  // namespace
}  // namespace hawser::pb
