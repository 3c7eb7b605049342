#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/transport/factory.h"
#include "hawser/transport/transport.h"
#include "negotiate/attached_transports.h"
#include "transport/network.h"

// Which of the enabled transports a client or server uses, and mistakes in the options.
namespace hawser::negotiate {
namespace {

struct NamedTransport final : transport::Transport {
  explicit NamedTransport(std::string_view of) : own(of) {}
  std::string_view name() const noexcept override { return own; }
  Result<std::shared_ptr<transport::TransportWorker>> attach(Loop&) override {
    return fail(ErrorCode::unavailable, "not asked for");
  }
  const std::string_view own;
};

TransportSpec spec(std::string_view name) {
  const auto make = [](std::string_view of) -> std::shared_ptr<transport::Transport> {
    return std::make_shared<NamedTransport>(of);
  };
  return transport::make_spec({.name = name}, name, make);
}

// A network that makes each enabled transport, and knows the name "card" besides.
class MakingNetwork final : public transport::Network {
 public:
  Result<std::unique_ptr<transport::Listener>> listen(Loop&, std::string_view, transport::AcceptSink&) override {
    return fail(ErrorCode::unavailable, "not asked for");
  }
  Task<Result<std::unique_ptr<transport::Stream>>> connect(Loop&, std::string, Duration) override {
    co_return fail(ErrorCode::unavailable, "not asked for");
  }
  TransportList transports(const TransportOptions& options) override {
    TransportList made;
    for (const TransportSpec& one : options.enabled) made.push_back(std::make_shared<NamedTransport>(one.name()));
    return made;
  }
  std::vector<std::string_view> transport_names() const override { return {"card"}; }
};

TransportOptions enabling(const std::vector<std::string_view>& names) {
  TransportOptions options{.enabled = {}};
  for (const std::string_view name : names) options.enabled.push_back(spec(name));
  return options;
}

// The names that are used, with a comma between two, or the text of the error.
std::string chosen(const TransportOptions& options) {
  MakingNetwork network;
  const Result<TransportList> list = choose_transports(options, network);
  if (!list) return list.error().text;
  std::string names;
  for (const auto& one : *list) names += (names.empty() ? "" : ",") + std::string(one->name());
  return names;
}

TEST(ChooseTransports, TheOrderSelectsAndSorts) {
  TransportOptions options = enabling({"a", "b", "c"});
  EXPECT_EQ(chosen(options), "a,b,c");
  options.order = {"c", "a"};
  EXPECT_EQ(chosen(options), "c,a");
  options.order = {"c", "c", "a", "c"};
  EXPECT_EQ(chosen(options), "c,a") << "each once";
  options.order = {"card", "b"};
  EXPECT_EQ(chosen(options), "b") << "known, and not enabled";
  EXPECT_EQ(chosen(enabling({})), "");
}

TEST(ChooseTransports, ARequiredOneIsUsedAlone) {
  TransportOptions options = enabling({"a", "b"});
  options.required = "b";
  EXPECT_EQ(chosen(options), "b");
  options.required = "card";
  EXPECT_EQ(chosen(options), "");
  options.required = "stream";
  EXPECT_EQ(chosen(options), "");
}

TEST(ChooseTransports, UnknownNamesAreMistakes) {
  TransportOptions options = enabling({"a", "card"});
  options.order = {"a", "b"};
  EXPECT_EQ(chosen(options), "TransportOptions::order names \"b\", and there is no such transport: card, a");
  options.order = {"stream"};
  EXPECT_EQ(chosen(options), "TransportOptions::order names \"stream\", and there is no such transport: card, a");
  options.order = {};
  options.required = "b";
  EXPECT_EQ(chosen(options),
            "TransportOptions::required names \"b\", and there is no such transport: card, a or stream");
}

TEST(ChooseTransports, NamesHaveFewCharacters) {
  for (const std::string_view name : {"a", "z", "0", "9", "-", "_", "az09-_", "sixteen-letters_"}) {
    EXPECT_EQ(chosen(enabling({name})), name);
  }
  for (const std::string_view name : {"", "stream", "A", "a b", "a.b", "`", "{", "/", ":", "seventeen-letters"}) {
    const std::string text = chosen(enabling({name}));
    EXPECT_TRUE(text.contains("a name has 1 to 16 characters out of a-z, 0-9, - and _")) << name << ": " << text;
  }
  EXPECT_TRUE(chosen(enabling({"a", "b", "a"})).contains("named \"a\" twice"));
}

TEST(ChooseTransports, AHelloOffersFour) {
  TransportOptions options = enabling({"a", "b", "c", "d"});
  EXPECT_EQ(chosen(options), "a,b,c,d");
  options.enable(spec("e"));
  EXPECT_TRUE(chosen(options).starts_with("5 transports are enabled (a, b, c, d, e), and a HELLO offers at most 4"));
  options.order = {"e", "a"};
  EXPECT_EQ(chosen(options), "e,a");
}

TEST(TransportOptions, OneOfTheSameNameIsReplaced) {
  TransportOptions options = enabling({"a", "b"});
  const TransportSpec other = spec("a");
  options.enable(other);
  EXPECT_EQ(chosen(options), "a,b");
  EXPECT_EQ(&options.enabled[0].factory(), &other.factory());
  options.disable("a");
  options.disable("unknown");
  EXPECT_EQ(chosen(options), "b");
}

}  // namespace
}  // namespace hawser::negotiate
