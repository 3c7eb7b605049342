#include "kv/client_tracking.h"

#include <string>

#include "kv/set_options.h"

namespace hawser::kv {

void ClientTracking::set(Arguments arguments, protocol::resp::ReplyWriter& out) {
  const bool off = is_word(arguments[2], "off");
  if (!off && !is_word(arguments[2], "on")) return out.error("ERR syntax error");
  Mode mode = Mode::all;
  for (const std::string_view word : arguments.subspan(3)) {
    const bool in = is_word(word, "optin");
    if (in || is_word(word, "optout")) {
      const Mode wanted = in ? Mode::opt_in : Mode::opt_out;
      if (mode != Mode::all && mode != wanted) {
        return out.error("ERR You can't specify both OPTIN mode and OPTOUT mode");
      }
      mode = wanted;
      continue;
    }
    for (const std::string_view other : {"redirect", "bcast", "prefix", "noloop"}) {
      if (is_word(word, other)) {
        return out.error("ERR CLIENT TRACKING has OPTIN and OPTOUT on this server, and not " + std::string(word));
      }
    }
    return out.error("ERR syntax error");
  }
  if (off) {
    end();
    return out.ok();
  }
  if (!out.resp3()) {
    return out.error("ERR CLIENT TRACKING needs RESP3 on this server: send HELLO 3 before, or turn the cache off");
  }
  if (on() && mode != mode_) {
    return out.error(
        "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it "
        "with a different mode.");
  }
  mode_ = mode;
  out.ok();
}

void ClientTracking::set_caching(Arguments arguments, protocol::resp::ReplyWriter& out) {
  if (mode_ != Mode::opt_in && mode_ != Mode::opt_out) {
    return out.error(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled");
  }
  const bool yes = is_word(arguments[2], "yes");
  if (!yes && !is_word(arguments[2], "no")) return out.error("ERR syntax error");
  if (yes != (mode_ == Mode::opt_in)) {
    return out.error(yes ? "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
                         : "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");
  }
  caching_ = true;
  out.ok();
}

void ClientTracking::describe(protocol::resp::ReplyWriter& out) const {
  std::string_view flags[3] = {on() ? "on" : "off"};
  std::size_t count = 1;
  if (mode_ == Mode::opt_in) flags[count++] = "optin";
  if (mode_ == Mode::opt_out) flags[count++] = "optout";
  if (caching_) flags[count++] = mode_ == Mode::opt_in ? "caching-yes" : "caching-no";
  out.map(3);
  out.bulk("flags");
  out.set(count);
  for (const std::string_view flag : std::span(flags).first(count)) out.bulk(flag);
  out.bulk("redirect");
  out.number(on() ? 0 : -1);
  out.bulk("prefixes");
  out.array(0);
}

}  // namespace hawser::kv
