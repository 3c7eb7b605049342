#include "cli/call/server_name.h"

#include <gtest/gtest.h>

namespace hawser::cli {
namespace {

TEST(ServerName, ANoteNamesTheClusterThatIsUsed) {
  EXPECT_EQ(note_on_routes("xds:shop", nullptr), "");
  NamingRoutes routes{.clusters = {"blue"}};
  EXPECT_EQ(note_on_routes("xds:shop", &routes), "");
  routes.clusters.push_back("green\n");
  routes.main = 1;
  EXPECT_EQ(note_on_routes("xds:shop", &routes),
            "the routes of xds:shop lead to 2 clusters: the endpoints of its main cluster alone, green\\x0a, are used");
}

}  // namespace
}  // namespace hawser::cli
