#include "transport/tcp/connect_race.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <map>
#include <string>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/scope.h"

namespace hawser::transport {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The outcome of an attempt at one address, in virtual time.
struct Fate {
  Duration after = forever;
  bool answers = false;
};

class ConnectRaceTest : public ::testing::Test {
 protected:
  static LoopOptions options() {
    LoopOptions quiet;
    quiet.log = no_log();
    return quiet;
  }
  static SocketAddress address(const std::string& host) { return resolve({host, "80"}, false, false).value().front(); }

  // Returns an attempt that fails or succeeds according to `fates`, and is recorded.
  ConnectAttempt attempt() {
    return [this](SocketAddress to) { return pretend(to); };
  }
  Task<Result<Descriptor>> pretend(SocketAddress to) {
    const std::string name = to_string(to);
    begun.push_back(name);
    times.push_back(loop.now() - start);
    struct Count {
      explicit Count(int& of) : counted(of) { ++counted; }
      ~Count() { --counted; }
      int& counted;
    } const count(going_on);
    const Fate fate = fates.at(name);
    co_await loop.sleep(fate.after);
    if (!fate.answers) co_return fail(Error::of_connection(ErrorCode::unavailable, name + " refused"));
    co_return Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  Result<Descriptor> race(Time deadline = Time::max()) {
    start = loop.now();
    Result<Descriptor> winner = loop.run(race_to_connect(loop, list, attempt(), deadline));
    took = loop.now() - start;
    return winner;
  }

  Loop loop{std::make_unique<exec::SimPoller>(), options()};
  AddressList list{loop};
  std::map<std::string, Fate> fates;
  std::vector<std::string> begun;
  std::vector<Duration> times;
  int going_on = 0;
  Time start{};
  Duration took{};
};

TEST_F(ConnectRaceTest, ADeadAddressDelaysTheNextByTheAttemptDelay) {
  fates = {{"192.0.2.1:80", {}}, {"192.0.2.2:80", {milliseconds(10), true}}};
  list.add(address("192.0.2.1"));
  list.add(address("192.0.2.2"));
  list.complete();
  EXPECT_TRUE(race(loop.after(seconds(5))));
  EXPECT_LT(took, connection_attempt_delay + milliseconds(11));
  EXPECT_GE(took, connection_attempt_delay);
  EXPECT_EQ(going_on, 0) << "the loser goes on";
}

TEST_F(ConnectRaceTest, ARefusedAddressIsFollowedAtOnce) {
  fates = {{"192.0.2.1:80", {milliseconds(1), false}}, {"192.0.2.2:80", {milliseconds(1), true}}};
  list.add(address("192.0.2.1"));
  list.add(address("192.0.2.2"));
  list.complete();
  EXPECT_TRUE(race());
  EXPECT_LT(took, milliseconds(3));
}

TEST_F(ConnectRaceTest, TheFirstThatAnswersWinsWhenSeveralAreTried) {
  fates = {{"192.0.2.1:80", {milliseconds(400), true}}, {"192.0.2.2:80", {milliseconds(300), true}}};
  list.add(address("192.0.2.1"));
  list.add(address("192.0.2.2"));
  list.complete();
  EXPECT_TRUE(race());
  EXPECT_LT(took, milliseconds(401));
  EXPECT_EQ(begun.size(), 2U);
  EXPECT_EQ(going_on, 0);
}

TEST_F(ConnectRaceTest, FamiliesTakeTurnsIPv6First) {
  for (const char* const host : {"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1", "2001:db8::2"}) {
    list.add(address(host));
  }
  list.complete();
  fates = {{"192.0.2.1:80", {milliseconds(1), false}},
           {"192.0.2.2:80", {milliseconds(1), false}},
           {"192.0.2.3:80", {milliseconds(1), false}},
           {"[2001:db8::1]:80", {milliseconds(1), false}},
           {"[2001:db8::2]:80", {milliseconds(1), false}}};
  const Result<Descriptor> none = race();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().text, "192.0.2.3:80 refused");
  EXPECT_EQ(begun, (std::vector<std::string>{"[2001:db8::1]:80", "192.0.2.1:80", "[2001:db8::2]:80", "192.0.2.2:80",
                                             "192.0.2.3:80"}));
}

TEST_F(ConnectRaceTest, GivesUpAtItsDeadline) {
  fates = {{"192.0.2.1:80", {}}, {"192.0.2.2:80", {}}};
  list.add(address("192.0.2.1"));
  list.add(address("192.0.2.2"));
  list.complete();
  const Result<Descriptor> none = race(loop.after(seconds(3)));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::unavailable);
  EXPECT_GE(took, seconds(3));
  EXPECT_LT(took, seconds(3) + milliseconds(1));
  EXPECT_EQ(begun.size(), 2U);
  EXPECT_EQ(going_on, 0);
}

// The time of a resolver that does not answer counts towards connecting.
TEST_F(ConnectRaceTest, TheDeadlineHoldsWhileNoAddressIsKnown) {
  const Result<Descriptor> none = race(loop.after(seconds(3)));
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().text.find("not resolved in time"), std::string::npos) << none.error().text;
  EXPECT_LT(took, seconds(3) + milliseconds(1));
}

TEST_F(ConnectRaceTest, AddressesThatComeLaterAreTried) {
  fates = {{"192.0.2.1:80", {milliseconds(1), false}}, {"[2001:db8::1]:80", {milliseconds(1), true}}};
  list.add(address("192.0.2.1"));
  Scope scope;
  scope.spawn([](Loop& on, AddressList& to, SocketAddress late) -> Task<void> {
    co_await on.sleep(seconds(1));
    to.add(late);
    to.complete();
  }(loop, list, address("2001:db8::1")));
  EXPECT_TRUE(race(loop.after(seconds(5))));
  EXPECT_GE(took, seconds(1));
  EXPECT_LT(took, seconds(1) + milliseconds(3));
}

TEST_F(ConnectRaceTest, AnErrorOfTheListIsTheErrorIfThereIsNoAddress) {
  list.complete(Error::of_connection(ErrorCode::unavailable, "no such name"));
  const Result<Descriptor> none = race();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().text, "no such name");
}

TEST_F(ConnectRaceTest, AnAnswerWithManyAddressesIsBounded) {
  for (int i = 0; i < 1000; ++i) list.add(address("192.0.2." + std::to_string(i % 250)));
  list.complete();
  std::size_t count = 0;
  while (list.next()) ++count;
  EXPECT_EQ(count, AddressList::addresses_max);
}

// The order of the families does not matter: a name with many IPv6 addresses is also reached from a machine without
// IPv6.
TEST_F(ConnectRaceTest, ManyAddressesOfOneFamilyLeaveRoomForTheOther) {
  for (const bool v6_first : {true, false}) {
    AddressList both(loop);
    for (int i = 0; i < 2000; ++i) {
      const bool v6 = (i < 1000) == v6_first;
      both.add(address(v6 ? "2001:db8::" + std::to_string(i % 1000) : "192.0.2." + std::to_string(i % 250)));
    }
    both.complete();
    std::size_t v6 = 0;
    std::size_t count = 0;
    for (std::optional<SocketAddress> one = both.next(); one; one = both.next(), ++count) {
      EXPECT_EQ(one->family(), count % 2 == 0 ? AF_INET6 : AF_INET) << count;
      v6 += one->family() == AF_INET6 ? 1 : 0;
    }
    EXPECT_EQ(count, AddressList::addresses_max);
    EXPECT_EQ(v6, AddressList::addresses_max / 2);
  }
  // Addresses that have been tried already free no room for others.
  AddressList late(loop);
  for (int i = 0; i < 100; ++i) late.add(address("2001:db8::" + std::to_string(i)));
  while (late.next()) {
  }
  late.add(address("192.0.2.1"));
  EXPECT_TRUE(late.next());
}

TEST_F(ConnectRaceTest, DroppingTheTaskWithdrawsTheAttempts) {
  fates = {{"192.0.2.1:80", {}}, {"192.0.2.2:80", {}}};
  list.add(address("192.0.2.1"));
  list.add(address("192.0.2.2"));
  loop.run([](ConnectRaceTest& test, Loop& on, AddressList& to, ConnectAttempt how, int& count) -> Task<void> {
    static_cast<void>(test);
    {
      Scope scope;
      scope.spawn([](Loop& loop_of, AddressList& all, ConnectAttempt by) -> Task<void> {
        const auto none = co_await race_to_connect(loop_of, all, by, Time::max());
        ADD_FAILURE() << "resumed after its end";
      }(on, to, how));
      co_await on.sleep(seconds(1));
      EXPECT_EQ(count, 2);
    }
    EXPECT_EQ(count, 0);
    to.complete();
    co_await on.sleep(seconds(1));
  }(*this, loop, list, attempt(), going_on));
}

}  // namespace hawser::transport
