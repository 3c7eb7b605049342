#include "hawser/identity.h"

#include <gtest/gtest.h>

#include <string>

namespace hawser {
namespace {

TEST(Identity, AClaimHasItsNameAndItsValue) {
  Identity identity;
  EXPECT_FALSE(identity.has_claim("role", "reader"));
  identity.claims = {{"role", "reader"}, {"role", "writer"}, {"team", "storage"}};
  EXPECT_TRUE(identity.has_claim("role", "reader"));
  EXPECT_TRUE(identity.has_claim("role", "writer")) << "a list has several";
  EXPECT_FALSE(identity.has_claim("role", "storage")) << "the value of another claim";
  EXPECT_FALSE(identity.has_claim("Role", "reader"));
  EXPECT_FALSE(identity.has_claim("role", ""));
}

TEST(Identity, TheTextSaysWhoItIs) {
  EXPECT_EQ(no_identity().text(), "nobody");
  const Identity local{.kind = Identity::Kind::unix_peer, .pid = 3, .uid = 1, .gid = 2};
  EXPECT_EQ(local.text(), "unix uid 1 gid 2 pid 3");
  Identity identity{.kind = Identity::Kind::certificate};
  EXPECT_EQ(identity.text(), "certificate without a subject");
  identity.subject = "CN=a\n";
  EXPECT_EQ(identity.text(), "certificate CN=a\\x0a");
  identity.spiffe_id = "spiffe://shop/web";
  EXPECT_EQ(identity.text(), "certificate spiffe://shop/web") << "the most specific name";
  identity = {.kind = Identity::Kind::token, .subject = std::string(1000, 'x')};
  EXPECT_EQ(identity.text().size(), 256U);
}

}  // namespace
}  // namespace hawser
