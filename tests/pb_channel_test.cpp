// Clients of google::protobuf::Service.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/protobuf_channel.h"
#include "tests/pb_channel/fixture.h"

namespace hawser::pb {
namespace {

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

TEST_P(PbChannel, ACoroutineAwaitsTheEndOfACallOnItsOwnLoop) {
  const auto made = channel();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      sync_wait([](Channel& to) -> Task<void> {
        const std::thread::id thread = std::this_thread::get_id();
        for (int k = 0; k < 20; ++k) {
          Controller controller;
          probe::Receipt receipt;
          const probe::Parcel request = parcel("x");
          CallEnd end;
          probe::PostService_Stub(&to).Deliver(&controller, &request, &receipt, end.done());
          if (k % 2 == 0) Join(controller.call_id());  // Does not wait on a loop.
          co_await end;
          EXPECT_EQ(receipt.text(), "x 0") << controller.ErrorText();
          EXPECT_EQ(std::this_thread::get_id(), thread);
          co_await end;  // Has ended.
        }
      }(*made));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(PbChannel, ACoroutineThatAwaitsACallMayBeDestroyed) {
  const auto made = channel();
  const auto hold = [](Channel& to, CallId& id, bool& ended) -> Task<void> {
    Controller controller;
    probe::Receipt receipt;
    const probe::Parcel request = parcel("x");
    id = controller.call_id();
    CallEnd end;
    probe::PostService_Stub(&to).Hold(&controller, &request, &receipt, end.done());
    co_await end;
    EXPECT_EQ(receipt.text(), "x") << controller.ErrorText();
    ended = true;
  };
  CallId id;
  bool ended = false;
  {
    Loop loop;
    Scope scope;
    loop.run([](Scope& in, Task<void> task) -> Task<void> {
      in.spawn(std::move(task));
      co_return;
    }(scope, hold(*made, id, ended)));
    ASSERT_TRUE(soon([&] { return office.holding == 1; }));
  }
  Join(id);
  EXPECT_FALSE(ended);
  // Without a loop, the coroutine continues where the call ends.
  Scope scope;
  scope.spawn(hold(*made, id, ended));
  ASSERT_TRUE(soon([&] { return office.holding == 2; }));
  office.release();
  Join(id);
  EXPECT_TRUE(ended);
  EXPECT_TRUE(scope.empty());
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
