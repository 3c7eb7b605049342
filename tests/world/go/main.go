// go-control-plane as the control plane of two clients, whose choices are compared: grpc-go, and the program of
// tests/world/xds_client.cpp. Servers of grpc-go stand behind them.
//
//	hawser-world-xds CLIENT_PROGRAM [CASE...]
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	pick_first "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	ring_hash "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	round_robin "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrr_locality "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	kind_of_text "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	kind "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds_server "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const hosts = 10

// Detects hangs only.
const limit = 120 * time.Second

func check(condition bool, what ...any) {
	if !condition {
		fmt.Println(append([]any{"not true:"}, what...)...)
		os.Exit(1)
	}
}

// A server of grpc-go.
type host struct {
	pb.UnimplementedTestServiceServer
	name    string
	port    uint32
	calls   atomic.Int64
	fails   atomic.Bool  // Each call.
	pause   atomic.Int64 // Of a call, in milliseconds.
	retried atomic.Bool  // The first two attempts of each user fail.
	lock    sync.Mutex
	users   map[string]int // Attempts.
}

func (h *host) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	h.calls.Add(1)
	time.Sleep(time.Duration(h.pause.Load()) * time.Millisecond)
	if h.fails.Load() {
		return nil, status.Error(codes.Unavailable, "it fails")
	}
	if h.retried.Load() {
		h.lock.Lock()
		defer h.lock.Unlock()
		user := metadata.ValueFromIncomingContext(ctx, "x-user")[0]
		h.users[user]++
		if h.users[user] <= 2 {
			return nil, status.Error(codes.Unavailable, "it fails twice")
		}
	}
	return &pb.SimpleResponse{Username: h.name}, nil
}

func serve(register func(*grpc.Server)) uint32 {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	check(err == nil, err)
	server := grpc.NewServer()
	register(server)
	go server.Serve(socket)
	return uint32(socket.Addr().(*net.TCPAddr).Port)
}

func packed(message proto.Message) *anypb.Any {
	whole, err := anypb.New(message)
	check(err == nil, err)
	return whole
}

func count(number uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(number) }

func typed(name string, message proto.Message) *cluster.LoadBalancingPolicy {
	one := &core.TypedExtensionConfig{Name: name, TypedConfig: packed(message)}
	return &cluster.LoadBalancingPolicy{Policies: []*cluster.LoadBalancingPolicy_Policy{{TypedExtensionConfig: one}}}
}

// The resources of one name. A case changes them.
type chain struct {
	cluster    *cluster.Cluster
	host       *route.VirtualHost
	action     *route.RouteAction
	assignment *endpoint.ClusterLoadAssignment
	// Of further clusters.
	clusters, assignments []types.Resource
}

// Adds a cluster. Returns its name.
func (c *chain) add(name string, servers ...*host) string {
	more := new_chain(name, servers)
	c.clusters = append(c.clusters, more.cluster)
	c.assignments = append(c.assignments, more.assignment)
	return more.cluster.Name
}

// Adds a route before the last one.
func (c *chain) lead(match *route.RouteMatch, cluster string) {
	last := len(c.host.Routes) - 1
	action := &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: cluster}}
	one := &route.Route{Match: match, Action: &route.Route_Route{Route: action}}
	c.host.Routes = append(append(slices.Clone(c.host.Routes[:last]), one), c.host.Routes[last])
}

// Matches calls by a path or the begin of it, and by the header x-user.
func by_header(path string, header *route.HeaderMatcher) *route.RouteMatch {
	header.Name = "X-User"
	return &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: path}, Headers: []*route.HeaderMatcher{header}}
}

func new_chain(name string, servers []*host) *chain {
	ads := &core.ConfigSource{ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}}}
	c := &chain{}
	c.cluster = &cluster.Cluster{Name: name + "-cluster", ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{EdsConfig: ads, ServiceName: name + "-endpoints"}}
	c.action = &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: c.cluster.Name}}
	c.host = &route.VirtualHost{Name: "host", Domains: []string{"*"}, Routes: []*route.Route{{
		Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: ""}},
		Action: &route.Route_Route{Route: c.action}}}}
	c.assignment = &endpoint.ClusterLoadAssignment{ClusterName: name + "-endpoints", Policy: &endpoint.ClusterLoadAssignment_Policy{},
		Endpoints: []*endpoint.LocalityLbEndpoints{locality("a", 0, servers...)}}
	return c
}

func locality(zone string, priority uint32, servers ...*host) *endpoint.LocalityLbEndpoints {
	of := &endpoint.LocalityLbEndpoints{Locality: &core.Locality{Region: "r", Zone: zone}, LoadBalancingWeight: count(1),
		Priority: priority}
	for _, one := range servers {
		socket := &core.SocketAddress{Address: "127.0.0.1", PortSpecifier: &core.SocketAddress_PortValue{PortValue: one.port}}
		address := &core.Address{Address: &core.Address_SocketAddress{SocketAddress: socket}}
		of.LbEndpoints = append(of.LbEndpoints, &endpoint.LbEndpoint{
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: address}}})
	}
	return of
}

func (c *chain) snapshot(name, version string) *cache.Snapshot {
	ads := &core.ConfigSource{ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}}}
	routes := &route.RouteConfiguration{Name: name + "-routes", VirtualHosts: []*route.VirtualHost{c.host}}
	filter := &manager.HttpFilter{Name: "router", ConfigType: &manager.HttpFilter_TypedConfig{TypedConfig: packed(&router.Router{})}}
	http := &manager.HttpConnectionManager{HttpFilters: []*manager.HttpFilter{filter},
		RouteSpecifier: &manager.HttpConnectionManager_Rds{Rds: &manager.Rds{ConfigSource: ads, RouteConfigName: routes.Name}}}
	front := &listener.Listener{Name: name, ApiListener: &listener.ApiListener{ApiListener: packed(http)}}
	made, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{
		resource.ListenerType: {front}, resource.RouteType: {routes}, resource.ClusterType: append(c.clusters, c.cluster),
		resource.EndpointType: append(c.assignments, c.assignment)})
	check(err == nil, err)
	return made
}

// How a client makes its calls: those of tests/world/xds_client.cpp.
type plan struct{ calls, at_once, pause_ms, first_calls int }

type outcome struct {
	server string // Empty: the call failed.
	text   string
}

func bootstrap(port uint32, node string) string {
	return fmt.Sprintf(`{"xds_servers": [{"server_uri": "127.0.0.1:%d", "channel_creds": [{"type": "insecure"}],
		"server_features": ["xds_v3"]}], "node": {"id": "%s"}}`, port, node)
}

func grpc_go(config, name string, how plan) []outcome {
	resolver, err := xds.NewXDSResolverWithConfigForTesting([]byte(config))
	check(err == nil, err)
	connection, err := grpc.NewClient("xds:///"+name, grpc.WithResolvers(resolver),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err == nil, err)
	defer connection.Close()
	client := pb.NewTestServiceClient(connection)
	call := func(i int) outcome {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, "x-user", "user-"+strconv.Itoa(i))
		reply, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
		if err != nil {
			return outcome{text: err.Error()}
		}
		return outcome{server: reply.Username}
	}
	for i := range how.first_calls {
		call(i)
		time.Sleep(time.Millisecond)
	}
	outcomes := make([]outcome, how.calls)
	for i := 0; i < how.calls; {
		var group sync.WaitGroup
		for j := 0; j < how.at_once && i < how.calls; j++ {
			number := i
			group.Go(func() { outcomes[number] = call(number) })
			i++
		}
		group.Wait()
		time.Sleep(time.Duration(how.pause_ms) * time.Millisecond)
	}
	return outcomes
}

func hawser(program, config, name string, how plan) []outcome {
	words := []string{"xds:///" + name}
	for _, number := range []int{how.calls, how.at_once, how.pause_ms, how.first_calls} {
		words = append(words, strconv.Itoa(number))
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	command := exec.CommandContext(ctx, program, words...)
	command.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP_CONFIG="+config)
	command.Stderr = os.Stderr
	output, err := command.Output()
	check(err == nil, program, words, err)
	outcomes := make([]outcome, how.calls)
	for line := range strings.Lines(string(output)) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		i, err := strconv.Atoi(number)
		check(err == nil && i < how.calls, "the client says", line)
		if strings.Contains(rest, " ") {
			outcomes[i].text = rest
		} else {
			outcomes[i].server = rest
		}
	}
	return outcomes
}

// The calls of each server, and the calls that failed.
func counts(outcomes []outcome) (map[string]int, int) {
	by, failed := map[string]int{}, 0
	for _, one := range outcomes {
		if one.server != "" {
			by[one.server]++
		} else {
			failed++
		}
	}
	return by, failed
}

func shown(outcomes []outcome) string {
	by, failed := counts(outcomes)
	var names []string
	for name := range by {
		names = append(names, name)
	}
	sort.Strings(names)
	text := ""
	for _, name := range names {
		text += fmt.Sprintf("%s %d, ", name, by[name])
	}
	for _, one := range outcomes {
		if one.server == "" {
			return text + fmt.Sprintf("failed %d (%s)", failed, one.text)
		}
	}
	return text + "failed 0"
}

func near(number, expected, tolerance int) bool {
	return number >= expected-tolerance && number <= expected+tolerance
}

type policy_case struct {
	name   string
	how    plan
	change func(*chain, []*host)
	// `client` is its name.
	judge func(client string, outcomes []outcome, servers []*host)
	// Calls that both clients send to the same server, in percent. 0: any number.
	same int
}

func evenly(most int) func(string, []outcome, []*host) {
	return func(client string, outcomes []outcome, _ []*host) {
		by, failed := counts(outcomes)
		check(failed == 0 && len(by) == most, client, shown(outcomes))
		for _, number := range by {
			check(near(number, len(outcomes)/most, 2), client, shown(outcomes))
		}
	}
}

func none_fails(client string, outcomes []outcome, _ []*host) {
	_, failed := counts(outcomes)
	check(failed == 0, client, shown(outcomes))
}

func by_user(c *chain) {
	c.action.HashPolicy = []*route.RouteAction_HashPolicy{{PolicySpecifier: &route.RouteAction_HashPolicy_Header_{
		Header: &route.RouteAction_HashPolicy_Header{HeaderName: "X-User"}}}}
}

func ring_of(least, most uint64) *cluster.Cluster_RingHashLbConfig_ {
	return &cluster.Cluster_RingHashLbConfig_{RingHashLbConfig: &cluster.Cluster_RingHashLbConfig{
		MinimumRingSize: wrapperspb.UInt64(least), MaximumRingSize: wrapperspb.UInt64(most)}}
}

var policy_cases = []policy_case{
	{name: "round_robin", how: plan{500, 1, 0, 200}, judge: evenly(hosts)},
	{name: "typed_round_robin", how: plan{500, 1, 0, 200}, judge: evenly(hosts), change: func(c *chain, _ []*host) {
		c.cluster.LoadBalancingPolicy = typed("wrr", &wrr_locality.WrrLocality{
			EndpointPickingPolicy: typed("round_robin", &round_robin.RoundRobin{})})
	}},
	{name: "typed_pick_first", how: plan{50, 1, 0, 20}, judge: none_fails, same: 100, change: func(c *chain, _ []*host) {
		c.cluster.LoadBalancingPolicy = typed("pick_first", &pick_first.PickFirst{})
	}},
	{name: "least_request", how: plan{300, 1, 0, 200}, judge: none_fails, change: func(c *chain, _ []*host) {
		c.cluster.LbPolicy = cluster.Cluster_LEAST_REQUEST
	}},
	{name: "ring_hash", how: plan{500, 1, 0, 500}, judge: none_fails, same: 100, change: func(c *chain, _ []*host) {
		c.cluster.LbPolicy, c.cluster.LbConfig = cluster.Cluster_RING_HASH, ring_of(1024, 4096)
		by_user(c)
	}},
	{name: "small_ring", how: plan{500, 1, 0, 500}, judge: none_fails, same: 100, change: func(c *chain, _ []*host) {
		c.cluster.LbPolicy, c.cluster.LbConfig = cluster.Cluster_RING_HASH, ring_of(64, 64)
		by_user(c)
	}},
	{name: "typed_ring_hash", how: plan{500, 1, 0, 500}, judge: none_fails, same: 100, change: func(c *chain, _ []*host) {
		c.cluster.LoadBalancingPolicy = typed("ring_hash", &ring_hash.RingHash{HashFunction: ring_hash.RingHash_XX_HASH,
			MinimumRingSize: wrapperspb.UInt64(300), MaximumRingSize: wrapperspb.UInt64(400)})
		by_user(c)
	}},
	{name: "weighted_ring", how: plan{500, 1, 0, 500}, judge: none_fails, same: 98, change: func(c *chain, _ []*host) {
		c.cluster.LbPolicy, c.cluster.LbConfig = cluster.Cluster_RING_HASH, ring_of(1024, 4096)
		for i, one := range c.assignment.Endpoints[0].LbEndpoints {
			one.LoadBalancingWeight = count(uint32(i + 1))
		}
		by_user(c)
	}},
	{name: "localities", how: plan{800, 1, 0, 200}, change: func(c *chain, servers []*host) {
		c.assignment.Endpoints = []*endpoint.LocalityLbEndpoints{locality("a", 0, servers[:2]...), locality("b", 0, servers[2:6]...)}
		c.assignment.Endpoints[0].LoadBalancingWeight = count(3)
	}, judge: func(client string, outcomes []outcome, _ []*host) {
		by, failed := counts(outcomes)
		check(failed == 0 && near(by["s0"]+by["s1"], 600, 80), client, shown(outcomes))
	}},
	{name: "priorities", how: plan{100, 1, 0, 50}, change: func(c *chain, servers []*host) {
		gone := &host{name: "gone", port: 1}
		c.assignment.Endpoints = []*endpoint.LocalityLbEndpoints{locality("a", 0, gone), locality("b", 1, servers[0])}
	}, judge: func(client string, outcomes []outcome, _ []*host) {
		by, _ := counts(outcomes)
		check(by["s0"] == 100, client, shown(outcomes))
	}},
	{name: "outliers", how: plan{2000, 4, 10, 0}, change: func(c *chain, servers []*host) {
		servers[3].fails.Store(true)
		c.cluster.OutlierDetection = &cluster.OutlierDetection{Interval: durationpb.New(500 * time.Millisecond),
			BaseEjectionTime: durationpb.New(60 * time.Second), MaxEjectionPercent: count(20), EnforcingSuccessRate: count(0),
			FailurePercentageThreshold: count(50), EnforcingFailurePercentage: count(100), FailurePercentageMinimumHosts: count(3),
			FailurePercentageRequestVolume: count(3)}
	}, judge: func(client string, outcomes []outcome, _ []*host) {
		_, early := counts(outcomes[:1000])
		_, late := counts(outcomes[1000:])
		check(early > 0 && late == 0, client, "failures before and behind the ejection:", early, late)
	}},
	{name: "max_requests", how: plan{12, 12, 0, 0}, change: func(c *chain, servers []*host) {
		for _, one := range servers {
			one.pause.Store(1000)
		}
		c.cluster.CircuitBreakers = &cluster.CircuitBreakers{Thresholds: []*cluster.CircuitBreakers_Thresholds{
			{Priority: core.RoutingPriority_HIGH, MaxRequests: count(2)}, {MaxRequests: count(5)}}}
	}, judge: func(client string, outcomes []outcome, _ []*host) {
		_, failed := counts(outcomes)
		check(failed == 7, client, shown(outcomes))
	}},
	{name: "drops", how: plan{1000, 1, 0, 50}, change: func(c *chain, _ []*host) {
		c.assignment.Policy.DropOverloads = []*endpoint.ClusterLoadAssignment_Policy_DropOverload{
			{Category: "one", DropPercentage: &kind.FractionalPercent{Numerator: 2500, Denominator: kind.FractionalPercent_TEN_THOUSAND}},
			{Category: "two", DropPercentage: &kind.FractionalPercent{Numerator: 20}}}
	}, judge: func(client string, outcomes []outcome, _ []*host) {
		_, failed := counts(outcomes)
		check(near(failed, 400, 100), client, shown(outcomes))
	}},
	{name: "retries", how: plan{50, 1, 0, 0}, change: func(c *chain, servers []*host) {
		servers[0].retried.Store(true)
		c.assignment.Endpoints = []*endpoint.LocalityLbEndpoints{locality("a", 0, servers[0])}
		c.action.RetryPolicy = &route.RetryPolicy{RetryOn: "unavailable", NumRetries: count(2),
			RetryBackOff: &route.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(time.Millisecond)}}
	}, judge: func(client string, outcomes []outcome, servers []*host) {
		by, _ := counts(outcomes)
		calls := servers[0].calls.Load()
		check(by["s0"] == 50 && calls == 150, client, shown(outcomes), "attempts:", calls)
	}},
	{name: "weighted_clusters", how: plan{2000, 1, 0, 200}, change: func(c *chain, servers []*host) {
		c.assignment.Endpoints = []*endpoint.LocalityLbEndpoints{locality("a", 0, servers[:5]...)}
		weights := &route.WeightedCluster{Clusters: []*route.WeightedCluster_ClusterWeight{
			{Name: c.cluster.Name, Weight: count(3)}, {Name: c.add("green", servers[5:]...), Weight: count(1)}}}
		c.action.ClusterSpecifier = &route.RouteAction_WeightedClusters{WeightedClusters: weights}
	}, judge: func(client string, outcomes []outcome, _ []*host) {
		by, failed := counts(outcomes)
		green := by["s5"] + by["s6"] + by["s7"] + by["s8"] + by["s9"]
		check(failed == 0 && near(green, 500, 120), client, shown(outcomes))
	}},
	{name: "fraction", how: plan{2000, 1, 0, 100}, change: func(c *chain, servers []*host) {
		c.assignment.Endpoints = []*endpoint.LocalityLbEndpoints{locality("a", 0, servers[0])}
		part := &core.RuntimeFractionalPercent{DefaultValue: &kind.FractionalPercent{Numerator: 2500, Denominator: kind.FractionalPercent_TEN_THOUSAND}}
		c.lead(&route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: ""}, RuntimeFraction: part}, c.add("part", servers[1]))
	}, judge: func(client string, outcomes []outcome, _ []*host) {
		by, failed := counts(outcomes)
		check(failed == 0 && near(by["s1"], 500, 120), client, shown(outcomes))
	}},
	{name: "routes", how: plan{300, 1, 0, 0}, same: 100, change: func(c *chain, servers []*host) {
		c.assignment.Endpoints = []*endpoint.LocalityLbEndpoints{locality("a", 0, servers[0])}
		var clusters []string
		for i := 1; i < 7; i++ {
			clusters = append(clusters, c.add("c"+strconv.Itoa(i), servers[i]))
		}
		text := func(match *kind_of_text.StringMatcher) *route.HeaderMatcher {
			return &route.HeaderMatcher{HeaderMatchSpecifier: &route.HeaderMatcher_StringMatch{StringMatch: match}}
		}
		c.lead(by_header("/other", &route.HeaderMatcher{HeaderMatchSpecifier: &route.HeaderMatcher_PresentMatch{PresentMatch: true}}), clusters[0])
		c.lead(&route.RouteMatch{PathSpecifier: &route.RouteMatch_Path{Path: "/grpc.testing.TestService/Unary"}}, clusters[0])
		c.lead(by_header("/GRPC", text(&kind_of_text.StringMatcher{MatchPattern: &kind_of_text.StringMatcher_Suffix{Suffix: "7"}})), clusters[0])
		c.lead(by_header("/grpc", text(&kind_of_text.StringMatcher{MatchPattern: &kind_of_text.StringMatcher_Suffix{Suffix: "7"}})), clusters[1])
		c.lead(by_header("", text(&kind_of_text.StringMatcher{MatchPattern: &kind_of_text.StringMatcher_Contains{Contains: "13"}})), clusters[2])
		c.lead(by_header("", text(&kind_of_text.StringMatcher{IgnoreCase: true, MatchPattern: &kind_of_text.StringMatcher_Exact{Exact: "USER-5"}})), clusters[3])
		absent := &route.HeaderMatcher{HeaderMatchSpecifier: &route.HeaderMatcher_PresentMatch{PresentMatch: false}}
		c.lead(by_header("", absent), clusters[4])
		prefix := text(&kind_of_text.StringMatcher{MatchPattern: &kind_of_text.StringMatcher_Prefix{Prefix: "user-1"}})
		prefix.InvertMatch = true
		any_case := by_header("/GRPC.testing.TestService/", prefix)
		any_case.CaseSensitive = wrapperspb.Bool(false)
		c.lead(any_case, clusters[5])
	}, judge: func(client string, outcomes []outcome, _ []*host) {
		by, failed := counts(outcomes)
		check(failed == 0 && by["s0"] > 0 && by["s1"] == 0 && by["s2"] == 30 && by["s3"] > 0 && by["s4"] == 1 && by["s5"] == 0 && by["s6"] > 0,
			client, shown(outcomes))
	}},
	{name: "timeout", how: plan{3, 3, 0, 0}, change: func(c *chain, servers []*host) {
		for _, one := range servers {
			one.pause.Store(3000)
		}
		c.action.MaxStreamDuration = &route.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(200 * time.Millisecond)}
	}, judge: func(client string, outcomes []outcome, _ []*host) {
		_, failed := counts(outcomes)
		check(failed == 3 && strings.Contains(strings.ToLower(strings.ReplaceAll(outcomes[0].text, "_", "")), "deadline"), client, shown(outcomes))
	}},
}

// Each case has a name and a node of its own for each client, so that no state is shared.
func main() {
	check(len(os.Args) >= 2, "the program of Hawser's client is needed")
	program, chosen := os.Args[1], os.Args[2:]
	var servers []*host
	for i := range hosts {
		one := &host{name: "s" + strconv.Itoa(i), users: map[string]int{}}
		one.port = serve(func(server *grpc.Server) { pb.RegisterTestServiceServer(server, one) })
		servers = append(servers, one)
	}
	var refused sync.Map // Texts, by the types of the resources.
	callbacks := xds_server.CallbackFuncs{StreamRequestFunc: func(_ int64, request *discovery.DiscoveryRequest) error {
		if detail := request.GetErrorDetail(); detail != nil {
			refused.Store(request.GetTypeUrl(), detail.GetMessage())
		}
		return nil
	}}
	snapshots := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	control := xds_server.NewServer(context.Background(), snapshots, callbacks)
	port := serve(func(server *grpc.Server) { discovery.RegisterAggregatedDiscoveryServiceServer(server, control) })
	for _, one := range policy_cases {
		if len(chosen) > 0 && !slices.Contains(chosen, one.name) {
			continue
		}
		var results [2][]outcome
		for i, client := range []string{"grpc-go", "hawser"} {
			for _, server := range servers {
				server.calls.Store(0)
				server.fails.Store(false)
				server.retried.Store(false)
				server.pause.Store(0)
				server.users = map[string]int{}
			}
			resources := new_chain(one.name, servers)
			if one.change != nil {
				one.change(resources, servers)
			}
			node := one.name + "-" + client
			check(snapshots.SetSnapshot(context.Background(), node, resources.snapshot(one.name, "1")) == nil, node)
			begin := time.Now()
			if i == 0 {
				results[i] = grpc_go(bootstrap(port, node), one.name, one.how)
			} else {
				results[i] = hawser(program, bootstrap(port, node), one.name, one.how)
			}
			fmt.Printf("%s, %s: %s; %v\n", one.name, client, shown(results[i]), time.Since(begin).Round(time.Millisecond))
			refused.Range(func(kind, text any) bool {
				check(false, node, "refuses", kind, text)
				return true
			})
			one.judge(client, results[i], servers)
		}
		same := 0
		for i := range results[0] {
			if results[0][i].server == results[1][i].server {
				same++
			}
		}
		if one.same != 0 {
			fmt.Printf("%s: %d of %d calls at the same server\n", one.name, same, one.how.calls)
			check(same*100 >= one.same*one.how.calls, one.name, "same choices:", same)
		}
	}
}
