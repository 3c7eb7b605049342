#include "pipe/peer_pace.h"

#include <algorithm>
#include <utility>

namespace hawser::pipe {

PeerPace::Behind PeerPace::check(const Sample& now, std::uint64_t bytes,
                                 const detail::ReceiveAccount& account) noexcept {
  const Sample last = std::exchange(last_, now);
  const std::uint64_t taken = now.sent - last.sent;
  // The memory of a request may be kept until the peer has taken the reply: replies are sent from it.
  const bool keeps = account.used() > detail::ReceiveAccount::reserve_bytes && !account.plenty(0);
  const bool same = now.receiving && last.receiving && now.messages == last.messages;
  // A connection that waits until its peer takes replies is read again when the peer has taken them.
  const std::uint64_t moved = now.arrived - last.arrived + (now.pause == ReadPause::for_peer ? taken : 0);
  const bool own = now.pause == ReadPause::own || last.pause == ReadPause::own;
  if (same && !own && moved < bytes) return Behind::sending;
  return keeps && taken < std::min(last.backlog, bytes) ? Behind::taking : Behind::no;
}

}  // namespace hawser::pipe
