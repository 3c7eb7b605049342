#include "rpc/session/peer_life.h"

#include <algorithm>

namespace hawser::rpc {

PeerLife::Verdict PeerLife::check(Time now, Duration interval, const Sample& sample) noexcept {
  const Duration late = now - due_;
  last_received_ = std::min(last_received_ + late, now);
  last_progress_ = std::min(last_progress_ + late, now);
  const bool sends = sample.sent != last_.sent;
  if (sample.backlog == 0 || sends) last_progress_ = now;
  // A part of a long message is a sign of life. It is also one that the peer takes bytes of a long backlog, since our
  // ping or its answer may be behind them.
  const bool receives = sample.arrived != last_.arrived && last_received_ <= last_check_;
  if (receives || (sends && last_.backlog >= long_backlog_bytes)) last_received_ = now;
  last_check_ = now;
  last_ = sample;
  const Duration silent = now - last_received_;
  if (now - last_progress_ >= 2 * interval) return Verdict::stuck;
  if (silent >= 2 * interval && !sample.paused) return Verdict::lost;
  const Duration next = silent >= interval ? 2 * interval - silent : interval - silent;
  due_ = now + std::max(next, interval / 8);
  return silent >= interval ? Verdict::silent : Verdict::alive;
}

}  // namespace hawser::rpc
