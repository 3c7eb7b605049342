#include "base/alive.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace hawser {
namespace {

struct Watched {
  int value = 7;
  Alive<Watched> alive{*this};
};

static_assert(!std::is_copy_constructible_v<Alive<Watched>> && !std::is_move_constructible_v<Alive<Watched>>,
              "a Watch would point to the object from which the Alive was moved");

TEST(Alive, AWatchHasTheObjectUntilItIsDestroyed) {
  std::optional<Watched> object(std::in_place);
  const Watch<Watched> watch = object->alive.watch();
  EXPECT_TRUE(watch);
  ASSERT_EQ(watch.get(), &*object);
  EXPECT_EQ(watch.get()->value, 7);
  object.reset();
  EXPECT_FALSE(watch);
  EXPECT_EQ(watch.get(), nullptr);
}

TEST(Alive, CopiesOfAWatchSeeTheSameEnd) {
  std::optional<Watched> object(std::in_place);
  Watch<Watched> watch = object->alive.watch();
  const Watch<Watched> copy = watch;
  const Watch<Watched> moved = std::move(watch);
  object.reset();
  EXPECT_FALSE(copy);
  EXPECT_FALSE(moved);
}

TEST(Alive, AWatchIsOfOneObject) {
  std::optional<Watched> first(std::in_place);
  const Watched second;
  const Watch<Watched> of_first = first->alive.watch();
  const Watch<Watched> of_second = second.alive.watch();
  first.reset();
  EXPECT_FALSE(of_first);
  EXPECT_EQ(of_second.get(), &second);
  first.emplace();  // Another object at the same address.
  EXPECT_FALSE(of_first);
  EXPECT_TRUE(first->alive.watch());
}

// The usual case: a function that destroys its own object learns it before it uses a member.
TEST(Alive, ACallbackMayDestroyTheObject) {
  struct Caller {
    explicit Caller(std::function<void()> to_call) : callback(std::move(to_call)) {}
    bool exists_after_callback() const {
      const Watch<Caller> watch = alive.watch();
      const std::function<void()> called = callback;
      called();
      return watch.get() != nullptr;
    }
    std::function<void()> callback;
    Alive<Caller> alive{*this};
  };
  std::unique_ptr<Caller> caller = std::make_unique<Caller>([] {});
  EXPECT_TRUE(caller->exists_after_callback());
  caller->callback = [&caller] { caller.reset(); };
  EXPECT_FALSE(caller->exists_after_callback());
}

TEST(Alive, OtherThreadsMakeAndDropWatches) {
  Watched object;
  std::optional<Watch<Watched>> made;
  std::thread([&] {
    made = object.alive.watch();
    for (int i = 0; i < 1000; ++i) Watch<Watched> dropped = *made;
  }).join();
  EXPECT_EQ(made->get(), &object);
  std::thread([dropped = std::move(*made)] {}).join();
}

}  // namespace
}  // namespace hawser
