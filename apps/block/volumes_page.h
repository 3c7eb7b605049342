#pragma once

#include <string>

#include "block/store/store.h"
#include "block/volume_rules.h"
#include "hawser/pages.h"

namespace hawser::block {

// Rows of the page. A row says how many further volumes there are.
inline constexpr std::size_t volumes_listed_max = 1000;

// The page /volumes: the volumes that the client may read. `store` outlives the server.
ApplicationPage volumes_page(const VolumeStore& store, VolumeRules rules, std::string title);

}  // namespace hawser::block
