#include "block/nbd/connection_place.h"

#include <map>

namespace hawser::block::nbd {

std::optional<std::size_t> place_to_free(std::span<const ConnectionPlace> places, const PlaceRules& rules) {
  std::map<std::string_view, std::size_t> counts;
  for (const ConnectionPlace& place : places) ++counts[place.client];
  std::optional<std::size_t> chosen;
  std::size_t most = rules.kept_per_client;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t count = counts[places[i].client];
    if (count <= rules.kept_per_client || places[i].idle < rules.idle_min) continue;
    if (count < most || (count == most && chosen && places[i].idle <= places[*chosen].idle)) continue;
    most = count;
    chosen = i;
  }
  return chosen;
}

}  // namespace hawser::block::nbd
