#pragma once

#include <string>
#include <string_view>

#include "hawser/pages.h"

namespace hawser::observe {

// Returns why the request may not see a page with that access; empty if it may.
std::string refusal_of(const HttpRequest& request, PageAccess access, const PagesOptions& options);
// Returns why the request may not change anything; empty if it may.
std::string change_refusal_of(const HttpRequest& request, const PagesOptions& options);

// True for an address of this machine, as HttpRequest::peer() gives it.
bool is_loopback(std::string_view peer) noexcept;

}  // namespace hawser::observe
