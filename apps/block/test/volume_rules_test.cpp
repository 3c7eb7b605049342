// Who may do what with which volumes.
#include "block/volume_rules.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "block/nbd/stored_exports.h"
#include "block/service.h"
#include "block/store/store.h"
#include "block/volume.h"
#include "hawser/hawser.h"

namespace hawser::block {
namespace {

const Identity rules_user{.kind = Identity::Kind::unix_peer, .pid = 7, .uid = 1000, .gid = 100};

VolumeRules parsed(std::string_view text) {
  Result<VolumeRules> rules = VolumeRules::parse(text);
  EXPECT_TRUE(rules) << rules.error().text;
  return *rules;
}

TEST(VolumeRules, ALineAllowsAnAccessAndThoseBelowIt) {
  const VolumeRules rules = parsed(
      "# volumes access client\n"
      "\n"
      "  db-*\twrite uid 1000  \r\n"
      "db-1 manage certificate CN=db 1,O=x\n"
      "* read spiffe spiffe://example.org/backup\n"
      "open read anyone");
  EXPECT_TRUE(rules.allow(rules_user, VolumeAccess::read, "db-7"));
  EXPECT_TRUE(rules.allow(rules_user, VolumeAccess::write, "db-7"));
  EXPECT_FALSE(rules.allow(rules_user, VolumeAccess::manage, "db-7"));
  EXPECT_FALSE(rules.allow(rules_user, VolumeAccess::read, "other"));
  EXPECT_TRUE(
      rules.allow({.kind = Identity::Kind::certificate, .subject = "CN=db 1,O=x"}, VolumeAccess::manage, "db-1"));
  EXPECT_TRUE(rules.allow({}, VolumeAccess::read, "open"));
  EXPECT_FALSE(rules.allow({}, VolumeAccess::read, "open2"));
  const Identity backup{.kind = Identity::Kind::certificate, .spiffe_id = "spiffe://example.org/backup"};
  EXPECT_TRUE(rules.allow(backup, VolumeAccess::read, "other"));
  EXPECT_FALSE(rules.allow(backup, VolumeAccess::write, "other"));
  EXPECT_EQ(rules.check(rules_user, VolumeAccess::read, "other").error().code, ErrorCode::permission_denied);
  EXPECT_EQ(rules.check({}, VolumeAccess::read, "other").error().code, ErrorCode::unauthenticated);
}

TEST(VolumeRules, WithoutALineNobodyMayDoAnything) {
  EXPECT_FALSE(parsed("# nothing\n").allow(rules_user, VolumeAccess::read, "v"));
  EXPECT_TRUE(VolumeRules().allow({}, VolumeAccess::manage, "v"));
}

TEST(VolumeRules, AWrongLineIsNamed) {
  for (const char* const line : {"v", "v read", "v reads anyone", "v read anyone else", "v read uid x", "v read uid",
                                 "v read certificate", "v read spiffe example.org", "a*b read anyone", "v read root"}) {
    const Result<VolumeRules> rules = VolumeRules::parse(std::string("* read anyone\n") + line + "\n");
    ASSERT_FALSE(rules) << line;
    EXPECT_EQ(rules.error().text.find("line 2: "), 0U) << rules.error().text;
  }
  EXPECT_NE(VolumeRules::load("/nowhere/rules").error().text.find("/nowhere/rules"), std::string::npos);
}

std::unique_ptr<VolumeStore> store_of_three() {
  auto store = VolumeStore::open(std::make_unique<MemoryDirectory>(std::uint64_t{64} << 20), {});
  EXPECT_TRUE(store);
  for (const char* const name : {"hidden", "mine", "shown"}) EXPECT_TRUE((*store)->create(name, 8192, false));
  return std::move(*store);
}

Task<void> use_service(std::string address) {
  Client client;
  EXPECT_TRUE(co_await client.connect(address));
  const auto volumes = co_await client.call<&VolumeService::list>();
  EXPECT_TRUE(volumes && volumes->size() == 2 && volumes->front().name == "mine" && !volumes->front().read_only &&
              volumes->back().read_only);
  Volume mine(client, "mine");
  Volume shown(client, "shown");
  Volume hidden(client, "hidden");
  EXPECT_TRUE(co_await mine.size());
  EXPECT_TRUE(co_await shown.size());
  std::vector<std::byte> bytes(4096);
  EXPECT_TRUE(co_await mine.write(0, bytes));
  EXPECT_TRUE(co_await mine.write_zeroes(0, 4096));
  EXPECT_TRUE(co_await shown.read(0, bytes));
  EXPECT_TRUE(co_await shown.flush());
  std::vector<Result<void>> refused;
  refused.push_back(co_await shown.write(0, bytes));
  refused.push_back(co_await shown.discard(0, 4096));
  refused.push_back(co_await shown.write_zeroes(0, 4096));
  refused.push_back(co_await hidden.read(0, bytes));
  refused.push_back(co_await hidden.flush());
  refused.push_back(co_await client.call<&VolumeService::create>("new", 8192U, false));
  refused.push_back(co_await client.call<&VolumeService::resize>("mine", 4096U));
  refused.push_back(co_await client.call<&VolumeService::remove>("mine"));
  refused.push_back(co_await client.call<&VolumeService::remove>("absent"));
  for (const Result<void>& one : refused) EXPECT_EQ(one.error().code, ErrorCode::permission_denied);
  EXPECT_FALSE(co_await hidden.size());
  EXPECT_FALSE(co_await hidden.extents(0, 4096, 1));
  EXPECT_FALSE(co_await client.call<&VolumeService::scrub>("shown", 0U, 4096U));
}

// A client that may only read ends no opening of another one whose name it knows.
Task<void> open_for_two_processes(std::string address) {
  Client client(*Loop::current());
  EXPECT_TRUE(co_await client.connect(address));
  for (const std::string volume : {"mine", "shown"}) {
    const auto open = [&](std::string name, std::string process) {
      return client.call<&VolumeService::open_for>(std::move(name), std::string("name"), std::move(process));
    };
    const Result<OpenedVolume> first = co_await open(volume, "1");
    const Result<OpenedVolume> second = co_await open(volume, "2");
    EXPECT_TRUE(first && second);
    if (!first || !second) continue;
    const Result<void> used = co_await client.call<&VolumeService::flush>(first->name);
    EXPECT_EQ(used.has_value(), volume == "shown");
    EXPECT_EQ((co_await open(volume, "1")).has_value(), volume == "shown");
    // As after a lost connection. The earlier process stays known.
    EXPECT_TRUE(co_await open(second->name, "2"));
    EXPECT_FALSE(co_await client.call<&VolumeService::flush>(second->name));
    EXPECT_EQ((co_await open(volume, "1")).has_value(), volume == "shown");
  }
}

// `use` is called with the address of the service. This user may write "mine", and anyone may read "shown".
template <class Use>
void serve_by_rules(Use use) {
  const TemporaryFolder folder;
  const auto store = store_of_three();
  const std::string user = std::to_string(::geteuid());
  VolumeService service(*store, memory_in_flight_usual, parsed("mine write uid " + user + "\nshown read anyone\n"));
  Server server({.listen = "unix:" + (folder.path() / "native").string()});
  service.attach(server);
  ASSERT_TRUE(server.start());
  sync_wait(use(server.address()));
  server.stop();
}

TEST(VolumeRules, OnlyAClientThatMayWriteEndsOpeningsOfItsName) { serve_by_rules(open_for_two_processes); }

TEST(VolumeRules, TheServiceRefusesWhatNoRuleAllows) { serve_by_rules(use_service); }

Task<void> use_exports(VolumeStore& store) {
  nbd::StoredExports exports(*Loop::current(), store, {}, parsed("mine write uid 1000\nshown read anyone\n"));
  EXPECT_EQ((co_await exports.names(rules_user)).value(), (std::vector<std::string>{"mine", "shown"}));
  EXPECT_EQ((co_await exports.names({})).value(), std::vector<std::string>{"shown"});
  const auto mine = co_await exports.open("mine", rules_user);
  EXPECT_TRUE(mine && !(*mine)->info().read_only);
  const auto only = co_await exports.open("", {});
  EXPECT_TRUE(only && (*only)->info().name == "shown" && (*only)->info().read_only);
  EXPECT_TRUE(exports.permits(rules_user, (*mine)->info()));
  EXPECT_FALSE(exports.permits({}, (*mine)->info()));
  EXPECT_TRUE(exports.permits({}, (*only)->info()));
  EXPECT_EQ((co_await exports.open("mine", {})).error().code, ErrorCode::unauthenticated);
  EXPECT_EQ((co_await exports.open("hidden", rules_user)).error().code, ErrorCode::permission_denied);
}

TEST(VolumeRules, AReloadReachesAllCopiesAndAWrongFileChangesNothing) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "rules";
  const auto write = [&](std::string_view text) { std::ofstream(file) << text; };
  write("mine write uid 1000\n");
  VolumeRules rules = VolumeRules::load(file).value();
  const VolumeRules copy = rules;
  write("mine write nobody\n");
  EXPECT_FALSE(rules.reload(file));
  EXPECT_TRUE(copy.allow(rules_user, VolumeAccess::write, "mine"));
  write("mine read uid 1000\n");
  EXPECT_TRUE(rules.reload(file));
  EXPECT_FALSE(copy.allow(rules_user, VolumeAccess::write, "mine"));
  EXPECT_TRUE(copy.allow(rules_user, VolumeAccess::read, "mine"));
  VolumeRules open;
  EXPECT_TRUE(open.allow(rules_user, VolumeAccess::write, "mine"));
  EXPECT_TRUE(open.reload(file));
  EXPECT_FALSE(open.allow(rules_user, VolumeAccess::write, "mine"));
}

TEST(VolumeRules, ClientsOfNbdSeeWhatTheyMayRead) {
  const auto store = store_of_three();
  sync_wait(use_exports(*store));
}

}  // namespace
}  // namespace hawser::block
