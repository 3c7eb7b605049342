#pragma once

#include <string>
#include <string_view>

#include "hawser/pages.h"

namespace hawser::observe {

// Returns why the request may not see a page with that access; empty if it may.
std::string refusal_of(const HttpRequest& request, PageAccess access, const PagesOptions& options);
// Returns why the request may not take what costs the server time, such as a profile; empty if it may.
std::string use_refusal_of(const HttpRequest& request, const PagesOptions& options);
// Returns why the request may not change anything; empty if it may. `token`: that of the server; empty if it has none.
std::string change_refusal_of(const HttpRequest& request, const PagesOptions& options, std::string_view token);

// The token of PagesOptions, perhaps from its file, which is made if it does not exist. Throws as enable_pages().
std::string change_token_of(const PagesOptions& options);

// True for an address of this machine, as HttpRequest::peer() gives it.
bool is_loopback(std::string_view peer) noexcept;

}  // namespace hawser::observe
