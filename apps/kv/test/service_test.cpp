#include "kv/service.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/kv.h"
#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

Task<void> use_all_operations(KvClient client) {
  const std::string longest(9000, 'k');
  for (int i = 0; i < 20; ++i) {
    const std::string key = "key" + std::to_string(i) + std::string(1, '\0');
    auto missing = co_await client.get(key);
    EXPECT_TRUE(missing && !*missing);
    auto version = co_await client.set(key, "one");
    EXPECT_TRUE(version);
    if (!version) co_return;
    auto value = co_await client.get(key);
    EXPECT_TRUE(value && *value && (*value)->bytes == "one" && (*value)->version == *version);
    auto refused = co_await client.compare_and_set(key, *version + 1, "two");
    EXPECT_TRUE(refused && !*refused);
    auto changed = co_await client.compare_and_set(key, *version, "7");
    EXPECT_TRUE(changed && *changed && **changed > *version);
    auto sum = co_await client.increment(key, -9);
    EXPECT_TRUE(sum && *sum == -2);
  }
  std::vector<std::string> keys{"nosuch"};
  for (int i = 0; i < 20; ++i) keys.push_back("key" + std::to_string(i) + std::string(1, '\0'));
  auto many = co_await client.get_many(keys);
  EXPECT_TRUE(many && many->size() == 21 && !many->front());
  for (std::size_t i = 1; many && i < many->size(); ++i) EXPECT_EQ((*many)[i]->bytes, "-2");
  const std::string first = keys[1];
  auto removed = co_await client.remove(first);
  EXPECT_TRUE(removed && *removed);
  removed = co_await client.remove(first);
  EXPECT_TRUE(removed && !*removed);
  auto created = co_await client.compare_and_set(first, 0, "text");
  EXPECT_TRUE(created && *created);
  auto no_number = co_await client.increment(first, 1);
  EXPECT_TRUE(!no_number && no_number.error().code == ErrorCode::invalid_argument);
  auto long_key = co_await client.get(longest);
  EXPECT_TRUE(!long_key && long_key.error().code == ErrorCode::invalid_argument);
  auto no_lifetime = co_await client.set(first, "text", Duration::zero());
  EXPECT_TRUE(!no_lifetime && no_lifetime.error().code == ErrorCode::invalid_argument);
  // A millisecond.
  auto expiring = co_await client.set(first, "text", std::chrono::nanoseconds(1));
  EXPECT_TRUE(expiring);
  const Time end = Loop::current()->after(std::chrono::seconds(30));
  bool there = true;
  while (there && Loop::current()->now() < end) {
    const auto value = co_await client.get(first);
    there = value && *value;
  }
  EXPECT_FALSE(there);
}

Task<void> use_a_client(std::string address) {
  hawser::Client link;
  const Result<void> connected = co_await link.connect(address);
  EXPECT_TRUE(connected);
  for (const ReadPolicy reads : {ReadPolicy::calls, ReadPolicy::direct}) {
    KvClient client(link, reads);
    for (int i = 0; i < 20; ++i) {
      static_cast<void>(co_await client.remove("key" + std::to_string(i) + std::string(1, '\0')));
    }
    co_await use_all_operations(std::move(client));
  }
}

Task<void> use_a_pool(std::string address) {
  const std::shared_ptr<ClientPool> pool = ClientPool::create(std::move(address));
  co_await use_all_operations(KvClient(*pool));
}

Task<void> get_one_value_often(std::string address) {
  hawser::Client link;
  const Result<void> connected = co_await link.connect(address);
  EXPECT_TRUE(connected);
  KvClient client(link, ReadPolicy::calls);
  const std::string value(1 << 20, 'v');
  for (int i = 0; i < 2; ++i) {
    const std::string key = "key" + std::to_string(i);
    const auto version = co_await client.set(key, value);
    EXPECT_TRUE(version);
  }
  // 258 MiB, half of them from each key.
  std::vector<std::string> keys;
  for (int i = 0; i < 258; ++i) keys.push_back("key" + std::to_string(i % 2));
  const auto values = co_await client.get_many(keys);
  EXPECT_FALSE(values);
  if (values) co_return;
  EXPECT_EQ(values.error().code, ErrorCode::limit_exceeded);
  EXPECT_NE(values.error().text.find("the values of 258 keys exceed 256 MiB"), std::string::npos)
      << values.error().text;
}

TEST(Service, GetManyIsBounded) {
  for (const unsigned shards : {1U, 2U}) {
    KvServer server({.shards = shards});
    sync_wait(get_one_value_often(server.address()));
  }
}

TEST(Service, OneShard) {
  KvServer server;
  sync_wait(use_a_client(server.address()));
}

TEST(Service, APoolOfConnections) {
  KvServer server;
  sync_wait(use_a_pool(server.address()));
}

TEST(Service, SeveralShards) {
  KvServer server({.shards = 3});
  sync_wait(use_a_client(server.address()));
  // Clients of Redis see the same keys.
  RespPeer peer(server.address());
  EXPECT_EQ(peer.call({"GET", std::string("key3") + '\0'}), "$2\r\n-2\r\n");
}

}  // namespace
}  // namespace hawser::kv
