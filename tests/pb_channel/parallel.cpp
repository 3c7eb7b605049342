// ParallelChannel: one call to several channels at once.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/protobuf_parallel_channel.h"
#include "tests/pb_channel/fixture.h"

namespace hawser::pb {
namespace {

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

// Answers each call before CallMethod() returns.
class AnswersAtOnce final : public google::protobuf::RpcChannel {
 public:
  void CallMethod(const google::protobuf::MethodDescriptor*, google::protobuf::RpcController*,
                  const google::protobuf::Message*, google::protobuf::Message* response,
                  google::protobuf::Closure* done) override {
    static_cast<probe::Receipt&>(*response).set_text("at once");
    done->Run();
  }
};

// Its order of channels: one that answers at once, and one whose server holds the call or delivers.
TEST_P(PbParallelChannel, TheCallEndsAtItsLimitOfSuccesses) {
  const auto living = channel();
  AnswersAtOnce quick;
  const auto add_both = [&](ParallelChannel& both, int fail_limit, int success_limit) {
    const ParallelChannelOptions with{
        .timeout_ms = options.timeout_ms, .fail_limit = fail_limit, .success_limit = success_limit};
    ASSERT_EQ(both.Init(&with), 0);
    const auto merger = std::make_shared<Joining>();
    ASSERT_EQ(both.AddChannel(living.get(), DOESNT_OWN_CHANNEL, nullptr, merger), 0);
    ASSERT_EQ(both.AddChannel(&quick, DOESNT_OWN_CHANNEL, nullptr, merger), 0);
    ASSERT_EQ(both.AddChannel(living.get(), DOESNT_OWN_CHANNEL, nullptr, merger), 0);
  };
  const probe::Parcel request = parcel("x");
  {
    // The first part is in flight when the second one answers; the third one has not begun.
    ParallelChannel both;
    add_both(both, -1, 1);
    probe::PostService_Stub(&both).Hold(&controller, &request, &receipt, nullptr);
    ASSERT_FALSE(controller.Failed()) << controller.ErrorText();
    EXPECT_EQ(receipt.text(), "[at once]");
    ASSERT_EQ(controller.sub_count(), 3);
    EXPECT_EQ(controller.sub(0)->ErrorCode(), ECANCELED);
    EXPECT_EQ(controller.sub(2)->ErrorCode(), ECANCELED);
  }
  for (const auto& [fail_limit, success_limit] : {std::pair(3, 1), std::pair(-1, 3), std::pair(-1, 4)}) {
    controller.Reset();
    ParallelChannel both;
    add_both(both, fail_limit, success_limit);
    probe::PostService_Stub(&both).Deliver(&controller, &request, &receipt, nullptr);
    ASSERT_FALSE(controller.Failed()) << controller.ErrorText();
    EXPECT_EQ(receipt.text(), "[x 0][at once][x 0]") << fail_limit << " " << success_limit;
  }
}

// A success whose response is not merged is none: the parts that it has cancelled do not hide that.
TEST_P(PbParallelChannel, ALimitOfSuccessesNeedsAMergedResponse) {
  class Refusing final : public ResponseMerger {
   public:
    Result Merge(google::protobuf::Message*, const google::protobuf::Message*) override { return FAIL; }
  };
  const auto living = channel();
  AnswersAtOnce quick;
  ParallelChannel both;
  const ParallelChannelOptions with{.timeout_ms = options.timeout_ms, .success_limit = 0};
  ASSERT_EQ(both.Init(&with), 0);
  ASSERT_EQ(both.AddChannel(&quick, DOESNT_OWN_CHANNEL, nullptr, std::make_shared<Refusing>()), 0);
  ASSERT_EQ(both.AddChannel(living.get(), DOESNT_OWN_CHANNEL), 0);
  const probe::Parcel request = parcel("x");
  probe::PostService_Stub(&both).Hold(&controller, &request, &receipt, nullptr);
  EXPECT_EQ(controller.ErrorCode(), ERESPONSE) << controller.ErrorText();
}

// what() of an exception of the application may be null.
TEST_P(PbParallelChannel, AMergerMayThrowAnExceptionWithoutText) {
  class Throwing final : public ResponseMerger {
   public:
    Result Merge(google::protobuf::Message*, const google::protobuf::Message*) override { throw Wordless(); }

   private:
    struct Wordless : std::exception {
      const char* what() const noexcept override { return nullptr; }
    };
  };
  const auto living = channel();
  ParallelChannel both;
  const ParallelChannelOptions with{.timeout_ms = options.timeout_ms};
  ASSERT_EQ(both.Init(&with), 0);
  ASSERT_EQ(both.AddChannel(living.get(), DOESNT_OWN_CHANNEL, nullptr, std::make_shared<Throwing>()), 0);
  const probe::Parcel request = parcel("x");
  probe::PostService_Stub(&both).Deliver(&controller, &request, &receipt, nullptr);
  EXPECT_TRUE(controller.Failed());
  EXPECT_NE(controller.ErrorText().find("threw an exception without a text"), std::string::npos)
      << controller.ErrorText();
}

TEST_P(PbParallelChannel, AttachmentsAreMerged) {
  class Wrapping final : public ResponseMerger {
   public:
    Result Merge(google::protobuf::Message*, const google::protobuf::Message*) override { return FAIL_ALL; }
    Result MergeWithAttachment(google::protobuf::Message*, Attachment& attachment,
                               const google::protobuf::Message* sub_response,
                               const Attachment& sub_attachment) override {
      attachment.append("<" + sub_attachment.to_string() + ">");
      return static_cast<const probe::Receipt&>(*sub_response).text() == "fatal 0" ? FAIL_ALL : MERGED;
    }
  };
  const auto living = channel();
  ParallelChannel both;
  const ParallelChannelOptions with{.timeout_ms = options.timeout_ms};
  ASSERT_EQ(both.Init(&with), 0);
  const auto merger = std::make_shared<Wrapping>();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(both.AddChannel(living.get(), DOESNT_OWN_CHANNEL, nullptr, merger), 0);
  controller.request_attachment().append("beside");
  probe::PostService_Stub stub(&both);
  const probe::Parcel request = parcel("a");
  stub.Deliver(&controller, &request, &receipt, nullptr);
  ASSERT_FALSE(controller.Failed()) << controller.ErrorText();
  EXPECT_EQ(controller.response_attachment().to_string(), "<beside><beside>");
  ASSERT_EQ(controller.sub_count(), 2);
  EXPECT_EQ(controller.sub(1)->response_attachment().to_string(), "beside");
  controller.Reset();
  controller.request_attachment().append("beside");
  const probe::Parcel fatal = parcel("fatal");
  stub.Deliver(&controller, &fatal, &receipt, nullptr);
  EXPECT_EQ(controller.ErrorCode(), ERESPONSE) << controller.ErrorText();
  EXPECT_TRUE(controller.response_attachment().empty());
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

// Cancels the whole call when it merges the second response.
class Cancelling final : public ResponseMerger {
 public:
  explicit Cancelling(CallId call) : call_(std::move(call)) {}
  Result Merge(google::protobuf::Message*, const google::protobuf::Message*) override {
    if (++merged == 2) StartCancel(call_);
    return MERGED;
  }
  int merged = 0;

 private:
  const CallId call_;
};

TEST_P(PbParallelChannel, AMergerMayCancelItsCall) {
  const auto to = channel();
  const auto merger = std::make_shared<Cancelling>(controller.call_id());
  ParallelChannel inner;
  const ParallelChannelOptions with{.timeout_ms = options.timeout_ms};
  ASSERT_EQ(inner.Init(&with), 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(inner.AddChannel(to.get(), DOESNT_OWN_CHANNEL, {}, merger), 0);
  const probe::Parcel request = parcel("x");
  probe::PostService_Stub(&inner).Deliver(&controller, &request, &receipt, nullptr);
  EXPECT_EQ(controller.ErrorCode(), ECANCELED) << controller.ErrorText();
  EXPECT_EQ(merger->merged, 2);

  // The call that is cancelled is made of the one whose responses are merged.
  Controller second;
  const auto of_part = std::make_shared<Cancelling>(second.call_id());
  ParallelChannel part;
  ASSERT_EQ(part.Init(&with), 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(part.AddChannel(to.get(), DOESNT_OWN_CHANNEL, {}, of_part), 0);
  ParallelChannel outer;
  ASSERT_EQ(outer.Init(&with), 0);
  ASSERT_EQ(outer.AddChannel(&part, DOESNT_OWN_CHANNEL), 0);
  probe::PostService_Stub(&outer).Deliver(&second, &request, &receipt, nullptr);
  EXPECT_EQ(second.ErrorCode(), ECANCELED) << second.ErrorText();
  EXPECT_EQ(of_part->merged, 2);
}

// On a loop it shows that it merges, and goes on when it may. The thread that makes the call may have ended the last
// part: there it merges at once.
class Slow final : public ResponseMerger {
 public:
  Result Merge(google::protobuf::Message* response, const google::protobuf::Message* sub_response) override {
    merging = true;
    while (Loop::current() != nullptr && !may_go_on) std::this_thread::yield();
    response->MergeFrom(*sub_response);
    merged = true;
    return MERGED;
  }
  std::atomic<bool> merging{false};
  std::atomic<bool> may_go_on{false};
  std::atomic<bool> merged{false};
};

TEST_P(PbParallelChannel, AControllerIsDestroyedAfterTheResponsesHaveBeenMerged) {
  const auto to = channel();
  for (int round = 0; round < 20; ++round) {
    const auto merger = std::make_shared<Slow>();
    ParallelChannel made;
    const ParallelChannelOptions with{.timeout_ms = options.timeout_ms};
    ASSERT_EQ(made.Init(&with), 0);
    ASSERT_EQ(made.AddChannel(to.get(), DOESNT_OWN_CHANNEL, {}, merger), 0);
    auto passing = std::make_unique<Controller>();
    auto into = std::make_unique<probe::Receipt>();
    const probe::Parcel request = parcel("x");
    const CallId id = passing->call_id();
    probe::PostService_Stub(&made).Deliver(passing.get(), &request, into.get(), DoNothing());
    ASSERT_TRUE(soon([&] { return merger->merging.load(); }));
    merger->may_go_on = true;
    passing.reset();
    EXPECT_TRUE(merger->merged);
    into.reset();
    Join(id);
  }
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

}  // namespace
}  // namespace hawser::pb
