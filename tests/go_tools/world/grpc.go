package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func dial(address string, options ...grpc.DialOption) (*grpc.ClientConn, pb.TestServiceClient) {
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	connection, err := grpc.NewClient("passthrough:///"+address, options...)
	check(err == nil, err)
	return connection, pb.NewTestServiceClient(connection)
}

func unary(client pb.TestServiceClient, reply, request int32) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	got, err := client.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: reply, Payload: &pb.Payload{Body: make([]byte, request)}})
	if err == nil && len(got.GetPayload().GetBody()) != int(reply) {
		return fmt.Errorf("a reply of %d bytes", len(got.GetPayload().GetBody()))
	}
	return err
}

func down(client pb.TestServiceClient, ctx context.Context, count, size, pause_us int32) (grpc.ServerStreamingClient[pb.StreamingOutputCallResponse], error) {
	request := &pb.StreamingOutputCallRequest{}
	for range count {
		request.ResponseParameters = append(request.ResponseParameters, &pb.ResponseParameters{Size: size, IntervalUs: pause_us})
	}
	return client.StreamingOutputCall(ctx, request)
}

func drain(stream grpc.ServerStreamingClient[pb.StreamingOutputCallResponse], count int) error {
	for i := 0; ; i++ {
		_, err := stream.Recv()
		if err == io.EOF && i == count {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d of %d items: %w", i, count, err)
		}
	}
}

func full_stream(client pb.TestServiceClient, count, size, pause_us int32) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	stream, err := down(client, ctx, count, size, pause_us)
	if err != nil {
		return err
	}
	return drain(stream, int(count))
}

func grpc_cases(address string) {
	fmt.Println("grpc-go", grpc.Version)
	connection, client := dial(address)
	defer connection.Close()
	for _, each := range [][3]int32{{64, 1 << 20, 0}, {200, 100_000, 0}, {500, 1000, 0}, {20, 4<<20 - 100, 0}, {64, 10, 1 << 20}} {
		together(fmt.Sprint("calls of ", each), int(each[0]), func(int) error { return unary(client, each[1], each[2]) })
	}
	together("streams", 100, func(int) error { return full_stream(client, 100, 10_000, 0) })
	together("long streams", 4, func(int) error { return full_stream(client, 20, 1<<20, 0) })

	// Streams that are not read.
	ctx, cancel := context.WithCancel(context.Background())
	var paused []grpc.ServerStreamingClient[pb.StreamingOutputCallResponse]
	for range 8 {
		stream, err := down(client, ctx, 20, 1<<20, 0)
		check(err == nil, err)
		_, err = stream.Recv()
		check(err == nil, err)
		paused = append(paused, stream)
	}
	// The window of the connection is smaller than that of its streams together, so another one makes the calls.
	other, quick := dial(address)
	defer other.Close()
	latency("another connection beside streams that are not read", 200, func() error { return unary(quick, 100, 0) })
	together("paused streams", len(paused), func(i int) error { return drain(paused[i], 19) })
	cancel()

	// A cancelled call does not end its neighbours.
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 1000 {
			ctx, cancel := context.WithCancel(context.Background())
			stream, err := down(client, ctx, 100, 10, 1000)
			if err == nil {
				go stream.Recv()
			}
			cancel()
		}
	}()
	together("neighbours of cancelled calls", 8, func(int) error {
		for {
			if err := unary(client, 10, 0); err != nil {
				return err
			}
			select {
			case <-over:
				return nil
			default:
			}
		}
	})

	// Metadata that is too much fails the call with a text.
	many := context.Background()
	for i := range 65 {
		many = metadata.AppendToOutgoingContext(many, fmt.Sprint("x-m", i), "v")
	}
	_, err := client.UnaryCall(many, &pb.SimpleRequest{})
	check(status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "metadata"), err)
	check(unary(client, 10, 0) == nil, "a call after that")

	short, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	stream, err := down(client, short, 2, 10, 5_000_000)
	check(err == nil, err)
	check(status.Code(drain(stream, 2)) == codes.DeadlineExceeded || strings.Contains(drain(stream, 2).Error(), "DeadlineExceeded"), "a deadline")
	cancel()

	// grpc-go sends no PING sooner than every 10 s after this.
	pinging, client := dial(address, grpc.WithKeepaliveParams(keepalive.ClientParameters{
		Time: 10 * time.Second, Timeout: time.Second, PermitWithoutStream: true}))
	defer pinging.Close()
	check(full_stream(client, 2, 10, 500_000) == nil, "a slow stream")
}

func grpc_restart(address string) {
	policy := `{"methodConfig":[{"name":[{}],"waitForReady":true,"retryPolicy":{"maxAttempts":5,"initialBackoff":"0.1s",` +
		`"maxBackoff":"1s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}`
	connection, client := dial(address, grpc.WithDefaultServiceConfig(policy))
	defer connection.Close()
	until_input_ends(func(ctx context.Context) error {
		_, err := client.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: 1000})
		return err
	})
}
