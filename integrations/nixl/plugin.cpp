// The functions that NIXL looks up in libplugin_HAWSER.so.
#include "backend/backend_plugin.h"
#include "engine.h"

NIXL_PLUGIN_EXPORT nixlBackendPlugin* nixl_plugin_init() {
  return nixlBackendPluginCreator<hawser::nixl::Engine>::create(
      NIXL_PLUGIN_API_VERSION, "HAWSER", "0.1.0", hawser::nixl::Engine::parameters(), hawser::nixl::Engine::memories());
}

NIXL_PLUGIN_EXPORT void nixl_plugin_fini() {}
