#include "transport/common/message_assembly.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hawser::transport {
namespace {

using hawser::detail::ReceiveAccount;
using hawser::detail::ReceiveBudget;

constexpr std::size_t kib = 1024;
constexpr std::size_t receive_buffer_bytes_min = 100;

// Records the delivered messages, and answers select_receive_buffer() as the test has set it up.
struct AssemblySink final : MessageSink {
  struct Delivered {
    std::string head;
    std::string payload;
    const Block* payload_block = nullptr;
    bool discarded = false;
    bool cut = false;
  };
  void on_message(const Message& message) override {
    delivered.push_back({std::string(as_text(message.head)), std::string(as_text(message.payload)),
                         message.payload_block, message.discarded, message.cut});
    if (on_each) on_each();
  }
  ReceiveBuffer select_receive_buffer(Bytes head, std::size_t payload_bytes) override {
    asked.push_back(std::string(as_text(head)) + " " + std::to_string(payload_bytes));
    return where ? where() : ReceiveBuffer{};
  }
  void on_drained() override {}
  void on_closed(const Error&) override {}

  std::vector<Delivered> delivered;
  std::vector<std::string> asked;
  std::function<ReceiveBuffer()> where;
  std::function<void()> on_each;
};

std::string text_of(std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>('a' + i * 7 % 26);
  return text;
}

class MessageAssemblyTest : public testing::Test {
 protected:
  // Appends the message in parts of `part` bytes. Returns false if the sink has ended the connection.
  bool receive(const std::string& head, const std::string& payload, std::size_t part) {
    assembly.begin(head.size(), payload.size(), &account);
    const std::string all = head + payload;
    for (std::size_t at = 0; at < all.size(); at += part) {
      const auto bytes = as_bytes(std::string_view(all)).subspan(at, std::min(part, all.size() - at));
      if (!assembly.append(bytes, sink, receive_buffer_bytes_min, ended)) return false;
      used_max = std::max(used_max, budget.used());
    }
    EXPECT_EQ(assembly.missing(), 0U);
    assembly.deliver(sink);
    return true;
  }

  ReceiveBudget budget{1024 * kib, 1024 * kib};
  ReceiveAccount account{&budget};
  AssemblySink sink;
  MessageAssembly assembly;
  bool ended = false;
  std::size_t used_max = 0;
};

TEST_F(MessageAssemblyTest, PartsOfAnySizeMakeTheMessage) {
  for (const std::size_t part : {std::size_t{1}, std::size_t{3}, std::size_t{99}, std::size_t{100'000}}) {
    for (const std::size_t head : {std::size_t{0}, std::size_t{1}, std::size_t{28}, std::size_t{1000}}) {
      for (const std::size_t payload : {std::size_t{0}, std::size_t{1}, std::size_t{99}, std::size_t{5000}}) {
        sink.delivered.clear();
        sink.asked.clear();
        ASSERT_TRUE(receive(text_of(head), text_of(payload), part));
        ASSERT_EQ(sink.delivered.size(), 1U);
        EXPECT_EQ(sink.delivered[0].head, text_of(head));
        EXPECT_EQ(sink.delivered[0].payload, text_of(payload));
        EXPECT_FALSE(sink.delivered[0].discarded || sink.delivered[0].cut);
        EXPECT_EQ(sink.asked.size(), payload >= receive_buffer_bytes_min && head + payload != 0 ? 1U : 0U);
        EXPECT_FALSE(assembly.active());
        EXPECT_EQ(budget.used(), 0U);
      }
    }
  }
}

TEST_F(MessageAssemblyTest, AnAnnouncementTakesNoMemory) {
  assembly.begin(std::size_t{1} << 40, std::size_t{1} << 40, &account);
  EXPECT_TRUE(assembly.active());
  EXPECT_EQ(assembly.missing(), std::size_t{2} << 40);
  EXPECT_TRUE(assembly.append(as_bytes(std::string_view("x")), sink, receive_buffer_bytes_min, ended));
  EXPECT_EQ(budget.used(), 0U) << "the first stretch of a head is not charged";
}

TEST_F(MessageAssemblyTest, AHeadTakesAtMostTwiceWhatHasArrived) {
  constexpr std::size_t first = MessageAssembly::head_bytes_first;
  const std::string head = text_of(400'000);
  const auto append = [&](std::size_t begin, std::size_t end) {
    EXPECT_TRUE(assembly.append(as_bytes(std::string_view(head)).subspan(begin, end - begin), sink,
                                receive_buffer_bytes_min, ended));
  };
  assembly.begin(head.size(), 0, &account);
  append(0, 100'000);
  EXPECT_EQ(budget.used(), 100'000 - first);
  append(100'000, 100'001);
  EXPECT_EQ(budget.used(), 200'000 - first);
  append(100'001, 350'000);
  EXPECT_EQ(budget.used(), 400'000 - first) << "never more than was announced";
  append(350'000, 400'000);
  EXPECT_EQ(budget.used(), 400'000 - first);
  assembly.deliver(sink);
  EXPECT_EQ(sink.delivered[0].head, head);
}

TEST_F(MessageAssemblyTest, TheSinkIsAskedAsSoonAsTheHeadIsThere) {
  std::vector<std::byte> memory(200);
  sink.where = [&] { return ReceiveBuffer{ReceiveBuffer::Kind::given, MutableBytes(memory)}; };
  assembly.begin(4, 200, &account);
  EXPECT_TRUE(assembly.append(as_bytes(std::string_view("hea")), sink, receive_buffer_bytes_min, ended));
  EXPECT_TRUE(sink.asked.empty());
  EXPECT_TRUE(assembly.append(as_bytes(std::string_view("d")), sink, receive_buffer_bytes_min, ended));
  EXPECT_EQ(sink.asked, std::vector<std::string>{"head 200"});
  const std::string payload = text_of(200);
  EXPECT_TRUE(assembly.append(as_bytes(std::string_view(payload)), sink, receive_buffer_bytes_min, ended));
  assembly.deliver(sink);
  EXPECT_EQ(sink.asked.size(), 1U);
  EXPECT_EQ(sink.delivered[0].payload, payload);
  EXPECT_EQ(sink.delivered[0].payload_block, nullptr);
  EXPECT_EQ(as_text(memory), payload);
}

TEST_F(MessageAssemblyTest, RevokedMemoryIsNotTouched) {
  std::vector<std::byte> memory(200);
  sink.where = [&] { return ReceiveBuffer{ReceiveBuffer::Kind::given, MutableBytes(memory)}; };
  assembly.begin(4, 200, &account);
  EXPECT_TRUE(assembly.append(as_bytes(std::string_view("head")), sink, receive_buffer_bytes_min, ended));
  assembly.revoke(memory.data());
  const std::string payload = text_of(200);
  EXPECT_TRUE(assembly.append(as_bytes(std::string_view(payload)), sink, receive_buffer_bytes_min, ended));
  assembly.deliver(sink);
  EXPECT_TRUE(sink.delivered[0].discarded);
  EXPECT_TRUE(sink.delivered[0].payload.empty());
  EXPECT_EQ(memory[0], std::byte{0});
}

TEST_F(MessageAssemblyTest, ASinkThatEndsTheConnectionIsNotAskedForMemory) {
  std::vector<std::byte> memory(200);
  sink.where = [&] {
    ended = true;
    return ReceiveBuffer{ReceiveBuffer::Kind::given, MutableBytes(memory)};
  };
  EXPECT_FALSE(receive("head", text_of(200), 1000));
  EXPECT_TRUE(sink.delivered.empty());
  EXPECT_EQ(memory[0], std::byte{0});
}

TEST_F(MessageAssemblyTest, APayloadThatTheAccountRefusesIsDiscarded) {
  account.acquire_always(1000 * kib);
  ASSERT_TRUE(receive("head", text_of(500 * kib), 10 * kib));
  ASSERT_EQ(sink.delivered.size(), 1U);
  EXPECT_EQ(sink.delivered[0].head, "head");
  EXPECT_TRUE(sink.delivered[0].discarded);
  EXPECT_FALSE(sink.delivered[0].cut);
  EXPECT_LE(used_max, budget.bytes_max());
  EXPECT_EQ(account.arriving(), 0U);
  account.release(1000 * kib);
  ASSERT_TRUE(receive("head", text_of(500 * kib), 10 * kib));
  EXPECT_EQ(sink.delivered[1].payload, text_of(500 * kib));
  EXPECT_GE(used_max, 500 * kib) << "it is charged while it arrives";
}

// Parts are as long as the transport makes them: over shared memory, a quarter of the ring.
TEST_F(MessageAssemblyTest, AHeadThatTheAccountRefusesIsCut) {
  account.acquire_always(900 * kib);
  for (const std::size_t part : {10 * kib, 250 * kib, 600 * kib}) {
    ASSERT_TRUE(receive(text_of(500 * kib), text_of(300), part));
    ASSERT_EQ(sink.delivered.size(), 1U);
    const AssemblySink::Delivered message = std::exchange(sink.delivered, {})[0];
    EXPECT_TRUE(message.cut);
    EXPECT_TRUE(message.discarded);
    EXPECT_GE(message.head.size(), 4 * kib) << part;
    EXPECT_EQ(message.head, text_of(500 * kib).substr(0, message.head.size()));
    EXPECT_TRUE(sink.asked.empty()) << "the payload is discarded too";
  }
  EXPECT_LE(used_max, budget.bytes_max());
  EXPECT_EQ(account.arriving(), 0U);
  account.release(900 * kib);
}

TEST_F(MessageAssemblyTest, TheSinkMayHaveTheNextMessageBegin) {
  sink.on_each = [&] {
    sink.on_each = nullptr;
    EXPECT_FALSE(assembly.active());
    assembly.begin(2, 0, &account);
  };
  ASSERT_TRUE(receive("head", "payload", 4));
  EXPECT_TRUE(assembly.active());
  EXPECT_EQ(assembly.missing(), 2U);
}

TEST_F(MessageAssemblyTest, TheAccountMayEndFirst) {
  auto other = std::make_unique<ReceiveAccount>(&budget);
  assembly.begin(4, 100 * kib, other.get());
  EXPECT_TRUE(assembly.append(as_bytes(std::string_view("head and more")), sink, receive_buffer_bytes_min, ended));
  EXPECT_NE(budget.used(), 0U);
  assembly.release_charge();
  EXPECT_EQ(budget.used(), 0U);
  other.reset();
}

}  // namespace
}  // namespace hawser::transport
