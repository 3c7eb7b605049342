#pragma once

#include <string>

#include "block/store/store.h"
#include "block/volume_rules.h"
#include "hawser/pages.h"

namespace hawser::block {

// Rows of a page: a row takes the loop microseconds.
inline constexpr std::size_t volumes_listed_max = 100;

// The page /volumes: the volumes that the client may read, by name, from the one behind `?after=NAME` on. A last row
// says where the next page begins. `store` outlives the server.
ApplicationPage volumes_page(const VolumeStore& store, VolumeRules rules, std::string title);

}  // namespace hawser::block
