#include "os/processor_time.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/temporary_folder.h"

namespace hawser {
namespace {

TEST(ProcessorTime, GrowsWithWork) {
  const auto begin = processor_time_used();
  EXPECT_GT(begin.count(), 0);
  while (processor_time_used() < begin + std::chrono::milliseconds(1)) {
  }
  EXPECT_GT(processors_of_process(), 0);
}

TEST(ProcessorQuota, IsTheLeastOfTheGroupAndThoseAboveIt) {
  const TemporaryFolder folder;
  const std::string root = folder.path();
  const std::string own = root + "/own";
  const auto write = [](const std::string& path, std::string_view text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
  };
  EXPECT_FALSE(processor_quota(own, root)) << "no control groups";
  write(own, "12:cpu:/old\n0::/a/b\n");
  EXPECT_FALSE(processor_quota(own, root)) << "no quota";
  write(root + "/a/b/cpu.max", "max 100000\n");
  EXPECT_FALSE(processor_quota(own, root));
  write(root + "/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(processor_quota(own, root), 1.5);
  write(root + "/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(processor_quota(own, root), 0.5);
  write(root + "/cpu.max", "25000 100000\n");
  EXPECT_EQ(processor_quota(own, root), 0.25);
  write(own, "0::/\n");  // In a container, whose group is the root.
  EXPECT_EQ(processor_quota(own, root), 0.25);
  for (const char* const text : {"", "max", "0 100000\n", "-1 100000\n", "100000\n", "100000 0\n", "x"}) {
    write(root + "/cpu.max", text);
    EXPECT_FALSE(processor_quota(own, root)) << text;
  }
}

}  // namespace
}  // namespace hawser
