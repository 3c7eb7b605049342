#include "os/secret_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <string>

#include "base/temporary_folder.h"

namespace hawser {
namespace {

struct SecretFile : testing::Test {
  Result<std::string> read(std::size_t bytes_max) const {
    const Result<SecretVector<char>> bytes = read_secret_file(path, bytes_max, {}, std::chrono::seconds(20));
    if (!bytes) return std::unexpected(bytes.error());
    return std::string(bytes->begin(), bytes->end());
  }

  TemporaryFolder folder;
  const std::string path = std::string(folder.path()) + "/secret";
};

TEST_F(SecretFile, IsReadUpToItsLimit) {
  for (const std::size_t size : {0U, 1U, 16'384U, 40'000U}) {
    std::string text(size, 'k');
    if (size != 0) text.back() = 'e';
    ASSERT_TRUE(write_private_file(path, text));
    EXPECT_EQ(read(size), text) << size;
    if (size == 0) continue;
    const Result<std::string> refused = read(size - 1);
    ASSERT_FALSE(refused) << size;
    EXPECT_EQ(refused.error().code, ErrorCode::limit_exceeded);
    EXPECT_TRUE(refused.error().text.contains(std::to_string(size - 1))) << refused.error().text;
  }
}

TEST_F(SecretFile, AFileThatIsMissingIsNamed) {
  const Result<std::string> missing = read(10);
  ASSERT_FALSE(missing);
  EXPECT_TRUE(missing.error().text.contains(path)) << missing.error().text;
}

TEST_F(SecretFile, IsMadeOnceAndForItsOwner) {
  EXPECT_EQ(make_secret_file(path, "first"), true);
  EXPECT_EQ(make_secret_file(path, "second"), false);
  EXPECT_EQ(read(100), "first");
  EXPECT_FALSE(others_may_use(path));
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_TRUE(others_may_use(path));
  EXPECT_TRUE(write_private_file(path, "third"));
  EXPECT_FALSE(others_may_use(path)) << "it is private again";
  EXPECT_FALSE(others_may_use(path + ".other"));
}

}  // namespace
}  // namespace hawser
