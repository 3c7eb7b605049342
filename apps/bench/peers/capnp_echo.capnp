@0xc94a6e0b7d3f1852;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("hawser::bench::capnp_echo");

interface Echo {
  echo @0 (data :Data) -> (data :Data);
  acknowledge @1 (data :Data) -> (bytes :UInt64, head :UInt64);
}
