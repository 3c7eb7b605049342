#pragma once

#include <string_view>

namespace hawser::cli::doctor {

// A counter of RDMA devices that reports errors or congestion.
struct Trouble {
  std::string_view counter;
  std::string_view meaning;
  std::string_view remedy;
};

// Null: the counter reports nothing of this kind, or is not known.
const Trouble* trouble_of(std::string_view counter) noexcept;

}  // namespace hawser::cli::doctor
