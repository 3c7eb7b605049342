#pragma once

#include <memory>
#include <string>

#include "agent.h"
#include "backend/backend_engine.h"

namespace hawser::nixl {

// The back end HAWSER of NIXL: NIXL's interface on top of Agent.
class Engine final : public nixlBackendEngine {
 public:
  // The parameters that createBackend() takes, with their defaults. docs/nixl.md.
  static nixl_b_params_t parameters();
  static nixl_mem_list_t memories() { return {DRAM_SEG}; }

  explicit Engine(const nixlBackendInitParams* parameters);

  bool supportsRemote() const override { return true; }
  bool supportsLocal() const override { return true; }
  bool supportsNotif() const override { return true; }
  nixl_mem_list_t getSupportedMems() const override { return memories(); }

  nixl_status_t registerMem(const nixlBlobDesc& memory, const nixl_mem_t& kind, nixlBackendMD*& out) override;
  nixl_status_t deregisterMem(nixlBackendMD* metadata) override;
  nixl_status_t getPublicData(const nixlBackendMD* metadata, std::string& out) const override;
  nixl_status_t loadLocalMD(nixlBackendMD* input, nixlBackendMD*& output) override;
  nixl_status_t loadRemoteMD(const nixlBlobDesc& input, const nixl_mem_t& kind, const std::string& agent,
                             nixlBackendMD*& output) override;
  nixl_status_t unloadMD(nixlBackendMD* input) override;

  nixl_status_t getConnInfo(std::string& out) const override;
  nixl_status_t loadRemoteConnInfo(const std::string& agent, const std::string& information) override;
  nixl_status_t connect(const std::string& agent) override;
  nixl_status_t disconnect(const std::string& agent) override;

  nixl_status_t prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& agent, nixlBackendReqH*& handle,
                         const nixl_opt_b_args_t* arguments = nullptr) const override;
  nixl_status_t postXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& agent, nixlBackendReqH*& handle,
                         const nixl_opt_b_args_t* arguments = nullptr) const override;
  nixl_status_t checkXfer(nixlBackendReqH* handle) const override;
  nixl_status_t releaseReqH(nixlBackendReqH* handle) const override;

  nixl_status_t getNotifs(notif_list_t& out) override;
  nixl_status_t genNotif(const std::string& agent, const std::string& message) const override;

 private:
  std::unique_ptr<Agent> agent_;
};

}  // namespace hawser::nixl
