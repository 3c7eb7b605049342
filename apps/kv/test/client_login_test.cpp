#include "kv/client_login.h"

#include <gtest/gtest.h>

namespace hawser::kv {
namespace {

using Answer = ClientLogin::Answer;

TEST(ClientLogin, WithoutAPasswordOnlyTheUserIsChecked) {
  ClientLogin login(nullptr, {});
  EXPECT_TRUE(login.authenticated());
  EXPECT_EQ(login.authenticate("default", "any"), Answer::accepted);
  for (unsigned i = 0; i < 2 * PasswordGate::wrong_max; ++i) EXPECT_EQ(login.authenticate("eve", "any"), Answer::wrong);
  login.end();
  EXPECT_TRUE(login.authenticated());
}

TEST(ClientLogin, TheLimitsOfRequestsRiseWithThePassword) {
  PasswordGate gate("open sesame");
  ClientLogin login(&gate, {});
  EXPECT_FALSE(login.authenticated());
  EXPECT_EQ(login.limits().arguments_max, 10U);
  EXPECT_EQ(login.authenticate("default", "open sesame"), Answer::accepted);
  EXPECT_EQ(login.limits().arguments_max, protocol::resp::RequestLimits().arguments_max);
  login.end();
  EXPECT_FALSE(login.authenticated());
  EXPECT_EQ(login.limits().arguments_max, 10U);
  EXPECT_EQ(gate.wrong(), 0U);
}

TEST(ClientLogin, WrongPasswordsCountBeyondAReset) {
  PasswordGate gate("open sesame");
  ClientLogin login(&gate, {});
  for (unsigned i = 1; i < PasswordGate::wrong_max; ++i) {
    EXPECT_EQ(login.authenticate("default", "sesame"), Answer::wrong) << i;
    EXPECT_EQ(login.authenticate("default", "open sesame"), Answer::accepted) << i;
    login.end();
  }
  EXPECT_EQ(login.authenticate("eve", "open sesame"), Answer::one_too_many);
  EXPECT_EQ(gate.wrong(), PasswordGate::wrong_max);
  EXPECT_FALSE(login.authenticated());
}

TEST(ClientLogin, AClientThatHasAuthenticatedStaysSoAfterAWrongPassword) {
  PasswordGate gate("open sesame");
  ClientLogin login(&gate, {});
  EXPECT_EQ(login.authenticate("default", "open sesame"), Answer::accepted);
  EXPECT_EQ(login.authenticate("default", "sesame"), Answer::wrong);
  EXPECT_TRUE(login.authenticated());
}

}  // namespace
}  // namespace hawser::kv
