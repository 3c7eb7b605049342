#include "exec/mailbox.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

namespace hawser::exec {
namespace {

struct Numbered final : detail::Posted {
  Numbered(int from, int count, int* alive_count) : thread(from), number(count), alive(alive_count) {}
  ~Numbered() override {
    if (alive != nullptr) --*alive;
  }
  void run() override {}
  int thread;
  int number;
  int* alive;
};

TEST(Mailbox, GivesWhatArrivedOldestFirst) {
  Mailbox mailbox;
  EXPECT_TRUE(mailbox.empty());
  EXPECT_EQ(mailbox.take(), nullptr);
  for (int i = 0; i < 3; ++i) mailbox.put(std::make_unique<Numbered>(0, i, nullptr));
  EXPECT_FALSE(mailbox.empty());
  detail::Posted* work = mailbox.take();
  EXPECT_TRUE(mailbox.empty());
  for (int i = 0; i < 3; ++i) {
    ASSERT_NE(work, nullptr);
    const std::unique_ptr<detail::Posted> one(std::exchange(work, work->next));
    EXPECT_EQ(static_cast<Numbered&>(*one).number, i);
  }
  EXPECT_EQ(work, nullptr);
}

TEST(Mailbox, FreesWhatIsLeft) {
  int alive = 5;
  {
    Mailbox mailbox;
    for (int i = 0; i < 5; ++i) mailbox.put(std::make_unique<Numbered>(0, i, &alive));
  }
  EXPECT_EQ(alive, 0);
}

TEST(Mailbox, KeepsTheOrderOfEachThread) {
  constexpr int threads = 4;
  constexpr int each = 20'000;
  Mailbox mailbox;
  std::vector<std::thread> senders;
  for (int id = 0; id < threads; ++id) {
    senders.emplace_back([&mailbox, id] {
      for (int i = 0; i < each; ++i) mailbox.put(std::make_unique<Numbered>(id, i, nullptr));
    });
  }
  std::array<int, threads> next{};
  for (int total = 0; total < threads * each;) {
    for (detail::Posted* work = mailbox.take(); work != nullptr; ++total) {
      const std::unique_ptr<detail::Posted> one(std::exchange(work, work->next));
      const auto& numbered = static_cast<Numbered&>(*one);
      ASSERT_EQ(numbered.number, next[static_cast<std::size_t>(numbered.thread)]++);
    }
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_TRUE(mailbox.empty());
}

// Work whose destructor posts more work.
struct Leaving final : detail::Posted {
  Leaving(Mailbox& where, std::unique_ptr<detail::Posted> what) : mailbox(where), more(std::move(what)) {}
  ~Leaving() override { mailbox.put(std::move(more)); }
  void run() override {}
  Mailbox& mailbox;
  std::unique_ptr<detail::Posted> more;
};

TEST(Mailbox, FreesWhatArrivesWhileItEnds) {
  int alive = 2;
  {
    Mailbox mailbox;
    for (int i = 0; i < 2; ++i) {
      mailbox.put(std::make_unique<Leaving>(mailbox, std::make_unique<Numbered>(0, i, &alive)));
    }
  }
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace hawser::exec
