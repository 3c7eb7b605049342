#include "cli/call/peer.h"

#include <utility>

#include "base/try.h"

namespace hawser::cli {

Result<std::unique_ptr<CallPeer>> make_peer(const PeerOptions& options) {
  if (options.protocol == "native") {
    if (!options.proto_file.empty()) {
      return fail(ErrorCode::invalid_argument,
                  "--proto is for the protocols grpc and baidu_std: native servers describe their methods themselves");
    }
    return make_native_peer(options);
  }
  if (!options.transports.empty()) {
    return fail(ErrorCode::invalid_argument,
                "--transport is for the native protocol: " + options.protocol + " is served over TCP only");
  }
  if (options.protocol == "http") {
    return fail(ErrorCode::invalid_argument,
                "HTTP has no descriptions: hawser call and hawser health speak it; use another protocol here");
  }
  std::unique_ptr<ProtobufFiles> files;
  if (!options.proto_file.empty()) {
    TRY(ProtobufFiles&& compiled, ProtobufFiles::of_source(options.proto_file, options.proto_folders));
    files = std::make_unique<ProtobufFiles>(std::move(compiled));
  }
  if (options.protocol == "baidu_std" && files == nullptr) {
    return fail(ErrorCode::invalid_argument, "servers of baidu_std do not describe their methods: give --proto FILE");
  }
  std::unique_ptr<CallPeer> peer = options.protocol == "grpc" ? make_grpc_peer(options, std::move(files))
                                                              : make_baidu_std_peer(options, std::move(files));
  if (peer == nullptr) {
    return fail(ErrorCode::invalid_argument, "this build of hawser has no " + options.protocol +
                                                 ": configure it with -DHAWSER_GRPC=ON or -DHAWSER_BRPC=ON");
  }
  return peer;
}

}  // namespace hawser::cli
