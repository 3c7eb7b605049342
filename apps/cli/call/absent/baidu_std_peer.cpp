#include "cli/call/peer.h"

namespace hawser::cli {

std::unique_ptr<CallPeer> make_baidu_std_peer(const PeerOptions&, std::unique_ptr<ProtobufFiles>) { return nullptr; }

}  // namespace hawser::cli
