#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "hawser/naming.h"
#include "tests/testing.h"

namespace hawser::testing_tools {

// Tests of names whose source is another program or plays one: they run the loop until the name changes.
class NamingFixture : public ::testing::Test {
 protected:
  // The addresses of the name's list, with a blank between two.
  static std::string addresses_of(const Naming& naming) {
    std::string addresses;
    for (const Endpoint& one : naming.state().endpoints) addresses += (addresses.empty() ? "" : " ") + one.address;
    return addresses;
  }
  // Runs the loop until the condition holds.
  template <class Condition>
  ::testing::AssertionResult until(Condition condition) {
    if (loop.run(eventually(loop, condition))) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "it does not happen";
  }
  // Runs the loop until the name has these endpoints and the source has no error.
  ::testing::AssertionResult becomes(const Naming& naming, std::string_view addresses) {
    if (until([&] { return addresses_of(naming) == addresses && !naming.state().error; })) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "it has " << addresses_of(naming) << " and " << error_text(naming);
  }
  // Runs the loop until the source has an error that contains the text.
  ::testing::AssertionResult fails_with(const Naming& naming, std::string_view text) {
    if (until([&] { return naming.state().error && naming.state().error->text.contains(text); })) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "it has " << error_text(naming);
  }

  Loop loop;

 private:
  static std::string error_text(const Naming& naming) {
    return naming.state().error ? naming.state().error->text : "no error";
  }
};

}  // namespace hawser::testing_tools
