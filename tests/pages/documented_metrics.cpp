// docs/operations.md, "Metrics", lists what /metrics has.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/hawser.h"
#include "hawser/pages.h"
#include "hawser/server_counter_rows.h"
#include "hawser/server_metrics.h"
#include "tests/raw_peer.h"

namespace hawser::documented_metrics_test {
namespace {

using namespace testing_tools;

// Metrics by their names, with the names of their labels.
using Labels = std::set<std::string>;
using Metrics = std::map<std::string, Labels>;

std::string echo(std::string text) { return text; }

// The rows of the table: | `name{label,label}` | meaning |
Metrics documented() {
  const std::filesystem::path page =
      std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "docs" / "operations.md";
  std::ifstream file(page);
  Metrics found;
  bool in_section = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) in_section = line == "## Metrics";
    if (!in_section || !line.starts_with("| `")) continue;
    const std::string name = line.substr(3, line.find('`', 3) - 3);
    const std::size_t brace = name.find('{');
    Labels labels;
    for (std::size_t at = brace; at < name.size() && name[at] != '}';) {
      const std::size_t end = name.find_first_of(",}", at + 1);
      labels.insert(name.substr(at + 1, end - at - 1));
      at = end;
    }
    EXPECT_TRUE(found.emplace(name.substr(0, brace), labels).second) << name << " has two rows";
  }
  EXPECT_FALSE(found.empty()) << page;
  return found;
}

// The name of each metric, with the labels of its samples. The suffixes of the samples of a histogram are not names.
Metrics exported(const std::string& text) {
  Metrics found;
  std::string name;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string_view line = std::string_view(text).substr(at, end - at);
    if (constexpr std::string_view type = "# TYPE "; line.starts_with(type)) {
      name = line.substr(type.size(), line.rfind(' ') - type.size());
      found.emplace(name, Labels{});
    }
    if (line.starts_with('#')) continue;
    EXPECT_TRUE(line.starts_with(name)) << line;
    const std::size_t labels_end = line.rfind('}');
    for (std::size_t from = line.find('{'); from < labels_end && labels_end != std::string_view::npos;) {
      const std::size_t equals = line.find("=\"", from);
      const std::string label(line.substr(from + 1, equals - from - 1));
      if (label != "le") found[name].insert(label);
      from = line.find('"', equals + 2) + 1;  // The values of this test have no quotes.
    }
  }
  return found;
}

TEST(DocumentedMetrics, AreThoseOfTheServer) {
  Server server({.listen = "127.0.0.1:0"});
  server.register_handler<echo>();
  enable_pages(server);
  ASSERT_TRUE(server.start());
  sync_wait([](std::string address) -> Task<void> {
    Client client;
    REQUIRE_OK(co_await client.connect(address));
    REQUIRE_OK(co_await client.call<echo>("x"));
  }(server.address()));
  RawSocket socket = RawSocket::connected_to(server.address());
  ASSERT_TRUE(socket.send(as_bytes("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")));
  const std::string answer = socket.receive_all();
  Metrics shown = exported(answer.substr(answer.find("\r\n\r\n") + 4));
  Metrics rows = documented();
  // Only machines with an RDMA port have it.
  rows.erase("hawser_rdma_port_events_total");
  shown.erase("hawser_rdma_port_events_total");
  for (const auto& [name, labels] : shown) {
    EXPECT_TRUE(rows.contains(name)) << "add a row for " << name << " to docs/operations.md, \"Metrics\"";
  }
  for (const auto& [name, labels] : rows) {
    ASSERT_TRUE(shown.contains(name)) << "docs/operations.md, \"Metrics\": no server has " << name;
    EXPECT_EQ(shown[name], labels) << name;
  }
}

// Each value of the server has its row once.
TEST(DocumentedMetrics, EachCounterHasOneRow) {
  std::set<std::string_view> names;
  ServerCounters counters;
  for (const auto& row : server_counter_rows<std::uint64_t>) {
    EXPECT_TRUE(names.insert(row.metric.name).second) << row.metric.name;
    EXPECT_EQ(counters.*row.value, 0U) << row.metric.name << " shows the value of an earlier row";
    counters.*row.value = 1;
  }
}

}  // namespace
}  // namespace hawser::documented_metrics_test
