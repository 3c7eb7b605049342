#include "block/volumes_page.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "hawser/http.h"

namespace hawser::block {
namespace {

using Values = std::vector<ApplicationPage::Value>;

Values volume_row(const VolumeStore& store, const std::string& name) {
  const auto volume = store.find(name);
  const Result<VolumeInfo> info = volume ? (*volume)->info() : std::unexpected(volume.error());
  if (!info) return {name, std::string("error: " + info.error().text)};
  const VolumeTraffic& traffic = info->traffic;
  return {name,
          std::string(info->read_only ? "read-only" : "in use") + (info->warning.empty() ? "" : ": " + info->warning),
          info->size,
          info->allocated_bytes,
          traffic.reads,
          traffic.read_bytes,
          traffic.writes,
          traffic.written_bytes,
          traffic.flushes,
          info->mismatches,
          std::uint64_t{info->known_damaged}};
}

}  // namespace

ApplicationPage volumes_page(const VolumeStore& store, VolumeRules rules, std::string title) {
  auto rows = [&store, rules = std::move(rules)](const HttpRequest& request) {
    const std::vector<std::string> names = store.names();
    const std::string after = query_value(request.query(), "after").value_or("");
    std::vector<Values> listed;
    for (auto name = std::ranges::upper_bound(names, after); name != names.end(); ++name) {
      if (!rules.allow(request.identity(), VolumeAccess::read, *name)) continue;
      if (listed.size() == volumes_listed_max) {
        listed.push_back({"further ones: /volumes?after=" + std::get<std::string>(listed.back().front())});
        break;
      }
      listed.push_back(volume_row(store, *name));
    }
    return listed;
  };
  return {.path = "/volumes",
          .title = std::move(title),
          .about = "Volumes: size, requests, errors of checksums.",
          .columns = {"name", "state", "size", "allocated_bytes", "reads", "read_bytes", "writes", "written_bytes",
                      "flushes", "checksum_errors", "known_damaged"},
          .rows = std::move(rows)};
}

}  // namespace hawser::block
