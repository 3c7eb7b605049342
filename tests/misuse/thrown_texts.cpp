#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <string_view>

#include "hawser/hawser.h"
#include "tests/testing.h"

// Exceptions of an application whose what() is null.
namespace hawser {
namespace thrown_texts {

struct Wordless : std::exception {
  const char* what() const noexcept override { return nullptr; }
};
struct Refusing {
  int value = 0;
};

inline Refusing answer(int value) { return {value}; }

}  // namespace thrown_texts

namespace codec {

// Throws 0 as an int, and 1 as an exception without a text, when it is read.
template <>
struct Codec<thrown_texts::Refusing> {
  static constexpr std::string_view signature = "test.Refusing";
  static constexpr std::size_t bytes_min = 1;
  static void size(Sizer& sizer, const thrown_texts::Refusing&) { sizer.add(1); }
  static void encode(Encoder& encoder, const thrown_texts::Refusing& value) {
    const auto byte = static_cast<char>(value.value);
    encoder.write(&byte, 1);
  }
  static bool decode(Decoder& decoder, thrown_texts::Refusing&) {
    const std::byte* data = nullptr;
    if (!decoder.take(1, data, "refusing")) return false;
    if (*data == std::byte{0}) throw 0;
    throw thrown_texts::Wordless();
  }
};

}  // namespace codec

namespace {

using namespace testing_tools;

TEST(ThrownTexts, OfAReplyThatIsRead) {
  Loop loop;
  loop.run([](Loop& here) -> Task<void> {
    Server server(here);
    server.register_handler<thrown_texts::answer>();
    EXPECT_OK(server.start());
    Client client(here);
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    auto wordless = co_await client.call<thrown_texts::answer>(1);
    EXPECT_ERROR(wordless, internal, "reading the reply threw an exception without a text");
    auto number = co_await client.call<thrown_texts::answer>(0);
    EXPECT_ERROR(number, internal, "reading the reply threw something that is not a std::exception");
  }(loop));
}

}  // namespace
}  // namespace hawser
